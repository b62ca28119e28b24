"""`df.write.format("stratalog")` and `writeStream`: rows become whole segments that are published in one step."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
