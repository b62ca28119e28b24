"""The shapes of what the JSON API answers, from which its OpenAPI document has its schemas.

A test compares them with real answers, field by field. Times are milliseconds since 1970, UTC; sizes are bytes; rates
are a second. None is for what is not known, or not there.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
