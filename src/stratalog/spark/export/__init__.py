"""Incremental, exactly-once tables from topics: Parquet, Delta and Iceberg. See `docs/how-to/spark_export.md`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
