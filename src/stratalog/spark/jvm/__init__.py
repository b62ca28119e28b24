"""What of Spark's inside is used: Java sources, workers, and whether this session has it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
