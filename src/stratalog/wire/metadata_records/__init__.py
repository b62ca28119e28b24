"""Records of Kafka's metadata log (KRaft), in all versions: generated definitions, and their frames."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
