"""Plan a query on the driver: from options and filters to splits, over both tiers and the brokers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
