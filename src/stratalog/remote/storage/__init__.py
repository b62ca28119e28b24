"""Bytes of the remote tier: the object store, the layout of keys, manifests, and the storage manager on top."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
