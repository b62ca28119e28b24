"""Options of the source: what a query asks for, as Spark's strings. Pure."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
