"""One segment and the ordered set of them: what may be asked, what may be done."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
