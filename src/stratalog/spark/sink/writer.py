"""The sink's interface to Spark: planned and committed on the driver, written by tasks; pickled in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from stratalog.spark.sink.options import NumberedBatch, SinkOptions, stream_name
from stratalog.spark.sink.plan import BulkTaskResult, WritePlan
from stratalog.spark.sink.rows import RowSplitter, SinkColumns
from stratalog.spark.sink.settled import settle_worker
from stratalog.spark.sink.task import Stager, TaskWriter


class WriteTarget(Protocol):
    """Where segments go: a data directory or a bucket. Picklable."""

    def plan(self, topic: str | None) -> WritePlan: ...

    def stager(self, plan: WritePlan) -> Stager: ...

    def commit(self, plan: WritePlan, tasks: list[BulkTaskResult], batch: NumberedBatch | None) -> None: ...

    def abort(self, plan: WritePlan, tasks: list[BulkTaskResult], batch: NumberedBatch | None) -> None: ...

    def is_published(self, batch: NumberedBatch) -> bool: ...


class StagedWrite:
    """A write of a batch or a stream."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = SinkColumns.of(schema, options.topic, include_headers=options.include_headers)
        self._target = target_of(options)
        self._plan = self._target.plan(options.topic)
        if options.topic is not None:
            self._plan.partitions_of(options.topic)  # a wrong number fails before any task begins

    def run(self, rows: Iterator[pa.RecordBatch]) -> BulkTaskResult:
        settle_worker()
        context = TaskContext.get()
        first = 0 if context is None else context.partitionId()
        splitter = RowSplitter(self._columns, self._options.topic, self._plan.partitions_of, first)
        written = TaskWriter(self._options, self._plan, splitter, self._target.stager(self._plan)).run(rows)
        if context is None:
            return written
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        return replace(written, query=query, is_retry=context.attemptNumber() > 0)

    def publish(self, messages: Sequence[WriterCommitMessage | None], batch: NumberedBatch | None) -> None:
        """Publish all segments in the order of `messages`; those of a numbered batch once."""
        self._target.commit(self._plan, segments_of(messages), batch)

    def discard(self, messages: Sequence[WriterCommitMessage | None], batch: NumberedBatch | None) -> None:
        """Remove everything that was staged, unless it was published."""
        self._target.abort(self._plan, segments_of(messages), batch)


class BulkWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise UsageError(
                "mode overwrite is not supported: a log only grows; delete the topic first, or use mode append"
            )
        self._batch = options.numbered_batch
        self._write = StagedWrite(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BulkTaskResult:
        return self._write.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._write.publish(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._write.discard(messages, self._batch)


class BulkStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: each batch is published once, however often it is retried.

    A stream is identified by its id in Spark's checkpoint, which restarts keep. A new stream at the same location has
    another id and counts its batches from 0.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.query is None and options.checkpoint is None:
            raise UsageError(
                "a stream needs option checkpointLocation (or queryId): by it the sink knows which batches it has "
                "published"
            )
        self._options = options
        self._write = StagedWrite(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BulkTaskResult:
        return self._write.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if messages:  # otherwise Spark ran no task, and the query is unknown
            self._write.publish(messages, self._numbered(messages, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._write.discard(messages, self._numbered(messages, batchId))

    def _numbered(self, messages: Sequence[WriterCommitMessage | None], number: int) -> NumberedBatch:
        query = max((each.query for each in segments_of(messages)), default="")
        return NumberedBatch(
            self._options.query or stream_name(query or None) or self._options.checkpoint or "", number
        )


def target_of(options: SinkOptions) -> WriteTarget:
    if options.path is not None:
        from stratalog.spark.sink.directory import DirectoryTarget  # loads the log, a bucket the object stores

        return DirectoryTarget(options)
    from stratalog.spark.sink.bucket import BucketTarget  # as above

    return BucketTarget(options)


def segments_of(messages: Sequence[WriterCommitMessage | None]) -> list[BulkTaskResult]:
    return [message for message in messages if isinstance(message, BulkTaskResult)]
