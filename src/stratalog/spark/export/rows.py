"""The rows of a table: records, decoded, with the columns that the table is partitioned by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession, functions as F

from stratalog.spark.export.commits import OffsetRange
from stratalog.spark.export.decoding import Decoding
from stratalog.spark.export.layout import RECORD_COLUMNS, ExportLayout
from stratalog.spark.export.ranges import reading_options


def records(spark: SparkSession, options: Mapping[str, str], ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the records of these ranges, as a table has them before values are decoded."""
    reader = spark.read.format("stratalog").options(**reading_options(options, ranges))
    found = reader.load()
    return found.select(*(name for name in RECORD_COLUMNS if name in found.columns))


def table_rows(found: DataFrame, layout: ExportLayout, decoding: Decoding | None) -> DataFrame:
    """Return what is written."""
    rows = found.withColumns({name: F.expr(sql) for name, sql in layout.derived.items()})
    return rows if decoding is None else decoding.apply(rows)
