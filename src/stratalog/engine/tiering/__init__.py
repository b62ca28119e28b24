"""The remote tier of one broker: its metadata topic, status, and configuration per topic."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
