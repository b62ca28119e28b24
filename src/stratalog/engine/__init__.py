"""The engine: all partitions of one process, and the only place where the local and the remote tier meet."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
