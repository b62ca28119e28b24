"""Plugin interfaces of the tier, their values and states, and the plugin loader."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
