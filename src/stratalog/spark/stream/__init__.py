"""The stream source, `spark.readStream.format("stratalog")`, and the lag of a stream.

`docs/reference/spark_streaming.md` describes both.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
