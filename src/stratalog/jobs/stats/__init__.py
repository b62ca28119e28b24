"""Statistics of topics: batch sizes, codecs and what others would save, time order."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
