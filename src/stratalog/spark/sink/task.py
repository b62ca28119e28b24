"""Write the rows of one task: encode batches, and stage segments of each partition as they fill up."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import Buffer

from stratalog.errors import StratalogError
from stratalog.log.segment import SegmentWriter, WrittenSegment
from stratalog.records import BatchSettings, batch_format as fmt, encode_batches
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.plan import BulkTaskResult, TaskSegment, WritePlan
from stratalog.spark.sink.rows import RowSplitter
from stratalog.util import REAL_FILESYSTEM, FileSystem

logger = logging.getLogger("stratalog.spark")

#: Limits of buffered rows in bytes: for one partition, and for all together.
_PARTITION_BUFFER_BYTES: Final = 4 << 20
_BUFFERS_BYTES: Final = 128 << 20
#: Segments being flushed to disk while others are written.
_SYNCS_AT_ONCE: Final = 4
#: With `sortByTime`: the bytes that are sorted at a time.
_SORT_BYTES: Final = 512 << 20


class Stager(Protocol):
    """Stores finished segments of a task until they are published."""

    #: Where the task's files are written, each partition in its own directory.
    directory: Path
    #: Whether the files have to survive a power failure.
    is_durable: bool

    def add(self, segment: WrittenSegment, topic: str, partition: int, first_timestamp_ms: int) -> None:
        """Add a segment, whose files are the stager's from now on."""

    def finish(self) -> tuple[TaskSegment, ...]:
        """Wait until all added segments are stored, and return them in the order in which they were added."""

    def abort(self) -> None:
        """Remove everything."""


@dataclass(slots=True)
class _Partition:
    writer: SegmentWriter
    next_offset: int
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    #: The first timestamp of the segment being written.
    first_timestamp_ms: int | None = None


class TaskWriter:
    """Writes the rows of one task attempt. Memory is bounded, except for the rows that are sorted at a time."""

    def __init__(
        self,
        options: SinkOptions,
        plan: WritePlan,
        splitter: RowSplitter,
        stager: Stager,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        self._plan = plan
        self._splitter = splitter
        self._stager = stager
        self._fs = fs
        self._config = options.log_config
        self._sorts = options.sort_by_time
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._syncing = ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="sink-sync")
        self._waiting_bytes = 0
        self._settings = BatchSettings(
            codec=options.codec,
            level=options.level,
            batch_bytes=options.batch_bytes,
            partition_leader_epoch=0,
        )
        self._buffer_max = (
            min(_SORT_BYTES, options.segment_bytes)
            if options.sort_by_time
            else max(_PARTITION_BUFFER_BYTES, options.batch_bytes)
        )

    def run(self, batches: Iterable[pa.RecordBatch]) -> BulkTaskResult:
        """Stage everything, or remove it on an error."""
        try:
            for rows in batches:
                for topic, number, records in self._splitter.split(rows):
                    self._add(topic, number, records)
            for (topic, number), partition in self._partitions.items():
                self._encode(topic, number, partition)
                partition.writer.roll()
            for (topic, number), partition in self._partitions.items():
                self._end_segment(topic, number, partition)
            return BulkTaskResult(self._stager.finish())
        except BaseException:
            self._abort()
            raise
        finally:
            self._syncing.shutdown()

    def _abort(self) -> None:
        """Remove the written files. An error here is only logged: the first error is raised, and the job cleans up."""
        for remove in (*(each.writer.abort for each in self._partitions.values()), self._stager.abort):
            try:
                remove()
            except (StratalogError, OSError) as error:
                logger.warning("files of a failed task cannot be removed now: %s", error)

    def _add(self, topic: str, number: int, records: pa.RecordBatch) -> None:
        partition = self._partitions.get((topic, number)) or self._open(topic, number)
        partition.waiting.append(records)
        partition.waiting_bytes += records.nbytes
        self._waiting_bytes += records.nbytes
        if partition.waiting_bytes >= self._buffer_max:
            self._encode(topic, number, partition)
        elif self._waiting_bytes >= _BUFFERS_BYTES and not self._sorts:
            for (name, each), other in self._partitions.items():
                self._encode(name, each, other)

    def _open(self, topic: str, number: int) -> _Partition:
        directory = self._stager.directory / f"{topic}-{number}"
        self._fs.make_dirs(directory)
        partition = _Partition(
            SegmentWriter(
                directory,
                self._config,
                fs=self._fs,
                sync=self._stager.is_durable,
                syncing=self._syncing if self._stager.is_durable else None,
            ),
            self._plan.end(topic, number),
        )
        self._partitions[topic, number] = partition
        return partition

    def _encode(self, topic: str, number: int, partition: _Partition) -> None:
        """Write the buffered rows. Sorted rows become one segment, even if that takes several calls."""
        if not partition.waiting:
            return
        table = pa.Table.from_batches(partition.waiting)
        self._waiting_bytes -= partition.waiting_bytes
        partition.waiting, partition.waiting_bytes = [], 0
        if self._sorts:
            table = table.take(pc.sort_indices(table, [("timestamp", "ascending")]))
        for columns in table.combine_chunks().to_batches():
            for batch in encode_batches(columns, partition.next_offset, self._settings):
                partition.writer.append(batch)
                for ended in partition.writer.taken():
                    self._stage(topic, number, partition, ended)
                if partition.first_timestamp_ms is None:
                    partition.first_timestamp_ms = _base_timestamp(batch.data)
            partition.next_offset += columns.num_rows
        if self._sorts:
            self._end_segment(topic, number, partition)

    def _end_segment(self, topic: str, number: int, partition: _Partition) -> None:
        for ended in partition.writer.finish():
            self._stage(topic, number, partition, ended)

    def _stage(self, topic: str, number: int, partition: _Partition, ended: WrittenSegment) -> None:
        first = partition.first_timestamp_ms
        partition.first_timestamp_ms = None
        self._stager.add(ended, topic, number, -1 if first is None else first)


def _base_timestamp(batch: Buffer) -> int:
    """Return the timestamp of the first record."""
    timestamp: int = fmt.INT64.unpack_from(batch, fmt.BASE_TIMESTAMP_AT)[0]
    return timestamp
