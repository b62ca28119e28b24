"""The audit of a bucket: what is read, the rules, findings and their repair."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
