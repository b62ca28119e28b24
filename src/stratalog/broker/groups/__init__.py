"""Group coordinator: classic, consumer, streams and share groups, committed offsets, and the log of both."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
