"""Read records one by one, with options of the source, a condition on rows and expressions for columns.

for row in read_rows(spark, {"path": "/var/lib/stratalog", "subscribe": "orders"}, where="offset < 10"):
    print(row)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

from stratalog.errors import UsageError
from stratalog.spark.options import ReadOptions


def source_options(
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
) -> dict[str, str]:
    """Return options of `format("stratalog")` for places and topics. Without topics, read all but the internal ones."""
    options: dict[str, str] = {}
    if paths:
        options["path"] = ",".join(str(path) for path in paths)
    if remote is not None:
        options["remote"] = remote
        options |= {f"remote.{key}": value for key, value in (remote_options or {}).items()}
    if topics is None:
        options["subscribePattern"] = ".*"
    else:
        options["subscribe"] = ",".join(sorted(topics))
    return options


def read_frame(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    columns: Sequence[str] = (),
    where: str | None = None,
    limit: int | None = None,
) -> DataFrame:
    """Return the query. `columns` and `where` are SQL expressions over the source's columns; keys and values are bytes.

    Raises UsageError, before any job, for wrong options, columns or a wrong condition.
    """
    ReadOptions.parse(options)  # here, because Spark passes option names in lower case only
    asked = "the options"
    try:
        frame = spark.read.format("stratalog").options(**options).load()
        _ = frame.schema
        if where is not None:
            asked = f"where {where}"
            frame = frame.where(where)
            _ = frame.schema
        if columns:
            asked = f"columns {', '.join(columns)}"
            frame = frame.selectExpr(*columns)
            _ = frame.schema
    except PySparkException as error:
        raise UsageError(f"{asked}: {_why(error)}") from error
    return frame if limit is None else frame.limit(limit)


def read_rows(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    columns: Sequence[str] = (),
    where: str | None = None,
    limit: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `read_frame`, a part at a time, with times in UTC. Raises UsageError, in one line."""
    frame = read_frame(spark, options, columns=columns, where=where, limit=limit)
    times = [field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)]
    try:
        for row in frame.toLocalIterator(prefetchPartitions=True):
            values = row.asDict(recursive=True)
            for name in times:  # Spark gives them in this process's time zone, without a zone
                if values[name] is not None:
                    values[name] = values[name].astimezone(UTC)
            yield values
    except PySparkException as error:
        raise UsageError(_why(error)) from error


def _why(error: Exception) -> str:
    """Return the line of our own error in a worker or planner, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("stratalog.")]
    line = (ours or lines or [type(error).__name__])[-1 if ours else 0]
    return line.split("Error: ", 1)[-1] if ours else line
