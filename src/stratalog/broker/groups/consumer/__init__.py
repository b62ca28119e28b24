"""Consumer groups of the consumer protocol (KIP-848): the coordinator assigns, and members reconcile incrementally."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
