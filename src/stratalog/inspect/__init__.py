"""Read-only views of data directories and buckets from outside, without a broker."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
