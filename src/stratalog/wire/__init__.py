"""Kafka's messages by number and version, and a small synchronous client that speaks them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
