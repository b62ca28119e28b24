"""`stratalog cluster`: the state of a cluster, one for development, and what a take-over needs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
