"""`stratalog metadata`: the metadata of a broker as a document, to keep it and to bring it back."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
