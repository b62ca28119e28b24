"""Implementation of Fetch: sessions, local and remote reads, and the encoding of responses."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
