"""Share groups (KIP-932), the part of partitions: which records are handed out, who has them, and what is done."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
