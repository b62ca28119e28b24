"""Streams groups (KIP-1071): the coordinator knows an application's topology, and assigns tasks to its members."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
