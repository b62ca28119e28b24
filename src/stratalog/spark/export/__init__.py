"""Incremental, exactly-once tables from topics: Parquet, Delta and Iceberg. `docs/spark_export.md` is about it."""

from __future__ import annotations

from stratalog.spark.export.decoding import Avro, Decoding, Json, Protobuf
from stratalog.spark.export.job import ExportedPartition, ExportResult, export, read_table

__all__ = [
    "Avro",
    "Decoding",
    "ExportResult",
    "ExportedPartition",
    "Json",
    "Protobuf",
    "export",
    "read_table",
]
