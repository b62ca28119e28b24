"""From a directory to a log: what a crash or damage left is put right."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
