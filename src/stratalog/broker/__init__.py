"""The broker: Kafka's wire protocol over the engine. One API a file in `apis`; storage stays synchronous below."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
