"""The broker: Kafka's wire protocol over the engine. `apis` has one file for each API; storage below is synchronous."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
