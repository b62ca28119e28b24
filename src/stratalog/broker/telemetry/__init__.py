"""Metrics that clients push (KIP-714): subscriptions, intervals, and where the values are kept."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
