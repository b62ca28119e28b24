"""The stream source as `DataSourceStreamReader` with admission control and Trigger.AvailableNow.

One object lives in a Python process beside the driver while the query runs, and returns offsets and plans. Copies with
only the options go to the workers, which read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from stratalog.inspect import ByteSources
from stratalog.spark.jvm import without_traceback
from stratalog.spark.model import SplitPlan
from stratalog.spark.options import by_topic
from stratalog.spark.planning import Constraints
from stratalog.spark.reading import checked_columns, read_rows
from stratalog.spark.stream.follower import Follower
from stratalog.spark.stream.offsets import parse
from stratalog.spark.stream.options import StreamOptions


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader with Spark's method names and offset documents. `Follower` does the work."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        checked_columns(schema)
        self._options = options
        self._schema = schema
        self._byte_sources = ByteSources.of(options.read)
        self._follower: Follower | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamReader, (self._options, self._schema)

    @property
    def _driver(self) -> Follower:
        if self._follower is None:
            self._follower = Follower(self._options, self._byte_sources)
        return self._follower

    @without_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return by_topic(self._driver.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return one limit for all options, which Spark passes back: Python sources cannot have composite limits."""
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    @without_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the latest offset within all limits, unless Spark says that this trigger has none (Trigger.Once)."""
        begin = parse(start)
        end = self._driver.end_of_batch(begin, unlimited=isinstance(limit, ReadAllAvailable))
        return start if end == begin else by_topic(end)

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._driver.fix_end()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the last view, for the progress report."""
        return by_topic(self._driver.latest) or None

    @without_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(plan) for plan in self._driver.plan(parse(start), parse(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        plan = partition.value
        if isinstance(plan, SplitPlan):
            with without_traceback():
                yield from read_rows(plan, self._options.read, self._byte_sources, self._schema, Constraints())

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.close()
