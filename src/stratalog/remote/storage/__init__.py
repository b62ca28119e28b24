"""Storage of the remote tier: the object store, object keys, manifests, and the storage manager."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
