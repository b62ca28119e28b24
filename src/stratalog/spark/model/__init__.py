"""Values that planning, reading and streams share: segments, and the pieces of them that one task reads."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
