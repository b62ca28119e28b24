"""Incremental, exactly-once tables from topics: Parquet, Delta and Iceberg. `docs/spark_export.md` is about it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
