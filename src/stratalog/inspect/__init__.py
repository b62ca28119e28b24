"""What lies in data directories and buckets, seen from outside. Looks, never changes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
