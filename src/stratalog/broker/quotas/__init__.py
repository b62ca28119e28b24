"""Quotas of clients: their limits, the measured rates, and how long a client has to wait."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
