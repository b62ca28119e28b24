"""The sink as Spark calls it: planned and committed on the driver, written by tasks; pickled in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from stratalog.errors import UsageError
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.plan import TaskSegments, WritePlan
from stratalog.spark.sink.rows import RowSplitter, SinkColumns
from stratalog.spark.sink.settled import settle_worker
from stratalog.spark.sink.task import Stager, TaskWriter


class Target(Protocol):
    """Where segments go: a data directory or a bucket. Picklable."""

    def plan(self, topic: str | None) -> WritePlan: ...

    def stager(self, plan: WritePlan) -> Stager: ...

    def commit(self, plan: WritePlan, tasks: list[TaskSegments], batch: int | None) -> None: ...

    def abort(self, plan: WritePlan, tasks: list[TaskSegments], batch: int | None) -> None: ...

    def is_published(self, batch: int) -> bool: ...


class BulkWrite:
    """What a write of a batch and one of a stream have in common."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = SinkColumns.of(schema, options.topic, include_headers=options.include_headers)
        self._target = target_of(options)
        self._plan = self._target.plan(options.topic)
        if options.topic is not None:
            self._plan.partitions_of(options.topic)  # a wrong number is told before any task begins

    def run(self, rows: Iterator[pa.RecordBatch]) -> TaskSegments:
        """One task."""
        settle_worker()
        context = TaskContext.get()
        first = 0 if context is None else context.partitionId()
        splitter = RowSplitter(self._columns, self._options.topic, self._plan.partitions_of, first)
        written = TaskWriter(self._options, self._plan, splitter, self._target.stager(self._plan)).run(rows)
        return replace(written, is_retry=context is not None and context.attemptNumber() > 0)

    def publish(self, messages: list[WriterCommitMessage | None], batch: int | None) -> None:
        self._target.commit(self._plan, _segments(messages), batch)

    def discard(self, messages: list[WriterCommitMessage | None], batch: int | None) -> None:
        self._target.abort(self._plan, _segments(messages), batch)


class BulkWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise UsageError(
                "mode overwrite is not supported: a log only grows; delete the topic first, or use mode append"
            )
        self._batch = options.batch
        # A name is for what is numbered; another write under it is a job like any other.
        self._write = BulkWrite(options if self._batch is not None else replace(options, stream=None), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskSegments:
        return self._write.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._write.publish(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._write.discard(messages, self._batch)


class BulkStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: each batch is published once, however often it is tried."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.stream is None:
            raise UsageError(
                "a stream needs option checkpointLocation (or queryId): by it the sink knows which batches it has published"
            )
        self._write = BulkWrite(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskSegments:
        return self._write.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._write.publish(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._write.discard(messages, batchId)


def target_of(options: SinkOptions) -> Target:
    if options.path is not None:
        from stratalog.spark.sink.directory import DirectoryTarget

        return DirectoryTarget(options)
    from stratalog.spark.sink.bucket import BucketTarget

    return BucketTarget(options)


def _segments(messages: list[WriterCommitMessage | None]) -> list[TaskSegments]:
    return [message for message in messages if isinstance(message, TaskSegments)]
