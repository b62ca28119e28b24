"""Interfaces of the tier, its values and states, and the loading of plug-ins."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
