"""The broker keys by subject, with Kafka's names, types and defaults."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
