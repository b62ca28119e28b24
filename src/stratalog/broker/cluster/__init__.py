"""A broker of a KRaft cluster: the metadata log followed and applied, registration, heartbeats, forwarding."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
