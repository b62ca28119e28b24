"""Restore topics from a bucket: the plan, and the files that it writes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
