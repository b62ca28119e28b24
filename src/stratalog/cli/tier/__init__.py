"""`stratalog tier`: list, check, repair and restore buckets of tiered topics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
