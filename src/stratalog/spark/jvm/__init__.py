"""The use of Spark's internals: Java sources, workers, and which capabilities a session has."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
