"""The stream source, `spark.readStream.format("stratalog")`, and how far a stream is behind.

`docs/reference/spark_streaming.md`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
