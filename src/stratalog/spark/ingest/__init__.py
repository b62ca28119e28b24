"""Loading files into a topic: `ingest`, and what it is told and tells."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
