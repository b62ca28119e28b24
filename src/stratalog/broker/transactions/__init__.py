"""Transaction coordinator: transactional ids, their states, markers, and the verification of partitions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
