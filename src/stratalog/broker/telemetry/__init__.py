"""Metrics that clients push (KIP-714): who is asked for what, how often, and where it is kept."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
