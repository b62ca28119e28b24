"""All partitions of one process. The only package that combines the local and the remote tier."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
