"""The stream source, `spark.readStream.format("stratalog")`, and how far a stream is behind.

`docs/spark_streaming.md`.
"""

from __future__ import annotations

from stratalog.spark.stream.lag import Lag, lag

__all__ = ["Lag", "lag"]
