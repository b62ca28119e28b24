"""Everything that relies on Spark's internals: Java sources, worker processes, and the capabilities of a session."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
