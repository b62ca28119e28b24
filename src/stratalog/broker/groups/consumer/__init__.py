"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, members follow at their own pace."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
