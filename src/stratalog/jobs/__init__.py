"""Offline jobs that look at, check, repair or move data. Each has a plan, work and a result."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
