"""Native loops over records and batches, compiled by numba, and kept as machine code that loads without it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
