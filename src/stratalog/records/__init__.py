"""Record batches: read, validate, write, and decode in bulk. See `docs/formats/record_batch.md`.

Importing this package is cheap: native libraries load at their first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
