"""The table formats that an export writes, and the target of each."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from stratalog.errors import UsageError
from stratalog.spark.export.delta_table import DeltaTarget
from stratalog.spark.export.engines import check_engine
from stratalog.spark.export.iceberg_table import IcebergTarget
from stratalog.spark.export.parquet_target import ParquetTarget
from stratalog.spark.export.targets import ExportTarget


def open_target(spark: SparkSession, kind: str, to: str, options: Mapping[str, str]) -> ExportTarget:
    """Return the target of a `kind` of parquet, delta or iceberg.

    Raises UsageError if `to` is invalid for it, or the session lacks the engine.
    """
    match kind:
        case "parquet":
            return ParquetTarget(spark, to, options)
        case "delta" | "iceberg":
            if options:
                raise UsageError(f"target options are for parquet; {kind} takes its own from the session's properties")
            check_engine(spark, kind)
            return DeltaTarget(spark, to) if kind == "delta" else IcebergTarget(spark, to)
        case _:
            raise UsageError(f"table format {kind}: expected parquet, delta or iceberg")
