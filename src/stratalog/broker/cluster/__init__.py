"""A broker of a KRaft cluster: follows the metadata log, registers, sends heartbeats, forwards requests."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
