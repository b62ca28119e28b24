"""Statistics of topics: batch sizes, time order, codecs and the savings of other codecs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
