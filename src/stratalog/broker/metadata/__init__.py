"""The metadata of a single broker: topics, configurations, features, producer ids, in an embedded store."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
