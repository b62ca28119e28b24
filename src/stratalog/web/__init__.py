"""The web address of a broker: metrics, the state of the tiers, and a page for people."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
