"""Write through brokers: one transaction for each task, all of which the driver commits or aborts.

The tasks of a batch write, leave their transactions open and report them to the driver. It commits all of them once
every task is done. A numbered batch (of a stream, or of a write with `queryId` and `batchId`) is written exactly once
despite crashes: see `batch_marks`. A write without a number may be committed in part if the driver dies while it
commits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from stratalog.errors import (
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    KafkaError,
    ProducerFencedError,
    UsageError,
)
from stratalog.records import BatchSettings, EncodedBatch, encode_batches
from stratalog.spark.reading import run_ahead
from stratalog.spark.sink.batch_marks import BatchMark, TaskTransaction, decode_marks, encode_mark, is_of
from stratalog.spark.sink.broker_options import BrokerSinkOptions
from stratalog.spark.sink.errors import FencedWriterError, LostTransactionError
from stratalog.spark.sink.producing import BatchProducer
from stratalog.spark.sink.rows import RowSplitter, SinkColumns
from stratalog.spark.sink.settled import settle_worker
from stratalog.util import random_uuid
from stratalog.wire.client import Cluster, Coordinators, ProducerIdentity

logger = logging.getLogger("stratalog.spark")

#: Batches encoded ahead of the one being sent.
_BATCHES_AHEAD = 16


@dataclass
class BrokerTaskResult(WriterCommitMessage):
    """The result of one task: `topics` with their partition counts, and its open transaction, if it has one."""

    records: int = 0
    batches: int = 0
    size: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    transaction: TaskTransaction | None = None
    #: Spark's id of the stream, "" for a batch write.
    query: str = ""


class ProducingWrite:
    """A write of a batch or a stream. Pickled from the driver to the tasks."""

    def __init__(self, options: BrokerSinkOptions, schema: StructType) -> None:
        """Run on the driver when a query begins, and for a stream again at the end of each batch."""
        self._options = options
        self._columns = SinkColumns.of(schema, options.topic, include_headers=options.include_headers)
        self._name = f"stratalog-sink-{options.stream or random_uuid().hex}"
        with self._connect() as cluster:
            if options.topic is not None:
                _partitions_of(cluster, options.topic)  # a wrong name fails before any task begins

    def _connect(self) -> Cluster:
        return Cluster(self._options.cluster)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def run(self, rows: Iterable[pa.RecordBatch]) -> BrokerTaskResult:
        """Run one task. Without rows it begins no transaction."""
        settle_worker()
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        filled = (batch for batch in rows if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return BrokerTaskResult(query=_query(context))
        with self._connect() as cluster:
            if self._options.is_transactional and self._options.stream is not None:
                self._finish_decided(Coordinators(cluster))
            writing = _TaskWriting(self._options, cluster, self._columns, self._transactional_id(task), task)
            return replace(writing.run(_chain(first, filled)), query=_query(context))

    def _transactional_id(self, task: int) -> str | None:
        return f"{self._name}-{task}" if self._options.is_transactional else None

    # --- the driver -------------------------------------------------------------------------------------------------

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        """Commit all transactions, and a numbered batch once: abort an earlier attempt that was not committed."""
        writes = [message for message in messages if isinstance(message, BrokerTaskResult)]
        transactions = tuple(each.transaction for each in writes if each.transaction is not None)
        if not self._options.is_transactional:
            return
        with self._connect() as cluster:
            coordinators = Coordinators(cluster)
            if batch is None:
                self._end(coordinators, transactions, commit=True)
                return
            query = max((each.query for each in writes), default="")
            mark = decode_marks(coordinators.committed(self._name)).get(query)
            if mark is not None and mark.batch >= batch:
                logger.info("batch %d of %s is written already", batch, self._name)
                self._end(coordinators, transactions, commit=False)
                return
            topics = {name: count for each in writes for name, count in each.topics.items()}
            if not topics:
                return
            home = min(topics)
            decided = BatchMark(batch, query, False, transactions)
            coordinators.commit_offsets(self._name, encode_mark(decided, home, topics[home]))
            self._end(coordinators, transactions, commit=True, batch=batch)
            self._mark_done(coordinators, decided, home)
            self._abort_open(coordinators)  # those of tasks that only an earlier run had

    def abort(self) -> None:
        """Abort all transactions, including those of tasks that did not report."""
        if not self._options.is_transactional:
            return
        with self._connect() as cluster:
            self._abort_open(Coordinators(cluster))

    def _finish_decided(self, coordinators: Coordinators) -> None:
        """Commit a batch that an earlier run decided, and mark it done. Raises LostTransactionError.

        Every task does so before it takes over a transactional id. So a task that finds an id taken over also finds the
        mark "done", or the transaction is lost.
        """
        committed = coordinators.committed(self._name)
        for query, mark in decode_marks(committed).items():
            if mark.is_done:
                continue
            logger.warning("batch %d of %s was decided and is committed now", mark.batch, self._name)
            try:
                self._end(coordinators, mark.transactions, commit=True, batch=mark.batch)
            except LostTransactionError:
                now = decode_marks(coordinators.committed(self._name)).get(query)
                if now is None or (now.batch, now.is_done) < (mark.batch, True):
                    raise
                continue
            home = next(topic for (topic, _), each in committed.items() if is_of(each, mark))
            self._mark_done(coordinators, mark, home)

    def _mark_done(self, coordinators: Coordinators, mark: BatchMark, home: str) -> None:
        done = replace(mark, is_done=True, transactions=())
        coordinators.commit_offsets(self._name, encode_mark(done, home, 1))

    def _abort_open(self, coordinators: Coordinators) -> None:
        """Abort open transactions by taking over their transactional ids."""
        for transactional_id in coordinators.ongoing(f"{self._name}-"):
            coordinators.init_producer(transactional_id, self._options.transaction_timeout_ms)

    def _end(
        self,
        coordinators: Coordinators,
        transactions: Iterable[TaskTransaction],
        *,
        commit: bool,
        batch: int | None = None,
    ) -> None:
        for each in transactions:
            producer = ProducerIdentity(self._transactional_id(each.task), each.producer_id, each.epoch)
            try:
                coordinators.end(producer, commit=commit)
            except (InvalidProducerEpochError, ProducerFencedError) as error:
                if not commit:
                    continue  # already aborted
                if batch is None:
                    raise FencedWriterError(
                        f"{producer.transactional_id}: its transaction was open for longer than transactionTimeout, or"
                        f" another run of the query has taken it over: {error}"
                    ) from error
                raise LostTransactionError(
                    f"batch {batch} of {self._name} was decided, but the transaction of task {each.task} was open for"
                    " longer than transactionTimeout and is aborted: this batch is written in part. Compare what it "
                    "has,"
                    " then go on with another queryId or checkpointLocation"
                ) from error


class _TaskWriting:
    """The rows of one task, encoded on one thread and sent on another."""

    def __init__(
        self,
        options: BrokerSinkOptions,
        cluster: Cluster,
        columns: SinkColumns,
        transactional_id: str | None,
        task: int,
    ) -> None:
        self._cluster = cluster
        self._task = task
        self._written = BrokerTaskResult()
        coordinators = Coordinators(cluster)
        try:
            self._identity = coordinators.init_producer(transactional_id, options.transaction_timeout_ms)
        except InvalidTransactionTimeoutError as error:
            raise UsageError(
                f"option transactionTimeout={options.transaction_timeout_ms}ms: the brokers allow less"
                " (transaction.max.timeout.ms); set it to what they allow"
            ) from error
        self._producer = BatchProducer(cluster, coordinators, self._identity)
        self._splitter = RowSplitter(columns, options.topic, self._partitions_of, task)
        self._sequences: dict[tuple[str, int], int] = {}
        self._settings = BatchSettings(
            codec=options.codec,
            level=options.level,
            batch_bytes=options.batch_bytes,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            is_transactional=transactional_id is not None,
        )

    def run(self, rows: Iterable[pa.RecordBatch]) -> BrokerTaskResult:
        """Write the rows, and leave the open transaction to the driver.

        If this fails, the next attempt or the abort of the job ends the transaction.
        """
        for topic, number, batch in run_ahead(self._encoded(rows), _BATCHES_AHEAD):
            self._producer.send(topic, number, batch)
            self._written.records += batch.records
        self._producer.flush()
        self._written.batches, self._written.size = self._producer.batches_sent, self._producer.bytes_sent
        if self._identity.transactional_id is not None:
            self._written.transaction = TaskTransaction(self._task, self._identity.producer_id, self._identity.epoch)
        return self._written

    def _encoded(self, rows: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, EncodedBatch]]:
        for each in rows:
            for topic, number, records in self._splitter.split(each):
                sequence = self._sequences.get((topic, number), 0)
                for batch in encode_batches(records, 0, replace(self._settings, base_sequence=sequence)):
                    sequence = (batch.base_sequence + batch.records) & 0x7FFF_FFFF
                    yield topic, number, batch
                self._sequences[topic, number] = sequence

    def _partitions_of(self, topic: str) -> int:
        count = self._written.topics[topic] = _partitions_of(self._cluster, topic)
        return count


class BrokerWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, options: BrokerSinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise UsageError(
                "mode overwrite is not supported: a log only grows; delete the topic first, or use mode append"
            )
        self._batch = options.batch
        self._write = ProducingWrite(options if self._batch is not None else replace(options, stream=None), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BrokerTaskResult:
        return self._write.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._write.commit(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        self._write.abort()


class BrokerStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, options: BrokerSinkOptions, schema: StructType) -> None:
        if options.stream is None:
            raise UsageError(
                "a stream needs option checkpointLocation (or queryId): by it the sink knows which batches it has "
                "written"
            )
        self._write = ProducingWrite(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BrokerTaskResult:
        return self._write.run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._write.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._write.abort()


def _partitions_of(cluster: Cluster, topic: str) -> int:
    try:
        return len(cluster.topic(topic).partitions)
    except KafkaError as error:
        raise UsageError(
            f"topic {topic} does not exist: create it, with as many partitions as it is to have"
        ) from error


def _query(context: TaskContext | None) -> str:
    return (context.getLocalProperty("sql.streaming.queryId") if context is not None else None) or ""


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
