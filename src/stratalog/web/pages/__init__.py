"""The pages of the console: a view each, and what can be changed by their forms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
