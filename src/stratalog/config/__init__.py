"""Declared configuration: every key with its type, default, validator, documentation and whether it is dynamic."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
