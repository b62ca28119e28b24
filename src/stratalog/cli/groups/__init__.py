"""`stratalog groups`: list groups, their members and lag, and reset or delete their offsets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
