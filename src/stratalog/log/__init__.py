"""One partition directory: segments, their indexes, producer state, leader epochs, recovery and retention."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
