"""Share groups (KIP-932): members read the same partitions together, each record by one of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
