"""Response types of the JSON API, from which its OpenAPI document is generated.

A test compares them with real responses, field by field. Times are milliseconds since 1970, UTC; sizes are bytes; rates
are per second. None means unknown or missing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
