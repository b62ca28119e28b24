"""Metadata of remote segments: the records of `__remote_log_metadata`, the cache, and the manager."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
