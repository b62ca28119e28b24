"""`stratalog groups`: what groups there are, what they read and how far they are, and setting them elsewhere."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
