"""The outside world and small codecs: clock, files, checksums, varints. Nothing here knows about Kafka's log."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
