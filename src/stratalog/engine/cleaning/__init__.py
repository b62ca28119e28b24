"""The log cleaner of a broker: the choice of the next log, its threads and checkpoints."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
