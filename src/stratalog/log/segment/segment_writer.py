"""Write whole segments from encoded batches, without a log, for bulk writers.

The files have the same bytes as those of `PartitionLog`: they share `LogSegment` and the roll rule. Files of the
partition (`partition.metadata`) and of the data directory (checkpoints) are up to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stratalog.config import LogConfig
from stratalog.errors import RecordListTooLargeError
from stratalog.log.append import BatchFacts, roll_reason, segment_ms_max, time_waited
from stratalog.log.format import encode as encode_producers, snapshot_file
from stratalog.log.segment.segment import LogSegment
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, FileSystem

if TYPE_CHECKING:
    from stratalog.records import EncodedBatch


#: With a sync thread, appended data is synced in pieces of this size: one large sync at the end would take long.
_SYNC_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A finished segment. Offsets are inclusive, sizes in bytes.

    `snapshot` is the producer state after it, which is empty. Like Kafka, no transaction index is written without
    aborted transactions.
    """

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    size: int
    records: int
    log: Path
    offset_index: Path
    time_index: Path
    snapshot: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """All its files, the `.log` last: if it exists, so do the others."""
        return self.offset_index, self.time_index, self.snapshot, self.log


class SegmentWriter:
    """Append batches to segments in `directory`, which exists and is used by this writer alone. Not thread-safe.

    `config` says when a segment is full (`segment.bytes`, `segment.ms`, index sizes), and the density and format of the
    indexes. Files are durable when `finish` returns. With the executor `syncing`, which writers may share, they are
    synced concurrently; segments from `taken` are then durable after the next `finish`. Raises OSError.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        *,
        fs: FileSystem = REAL_FILESYSTEM,
        sync: bool = True,
        syncing: Executor | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._fs = fs
        self._sync = sync
        self._syncing = syncing
        self._syncs: list[Future[None]] = []
        self._unsynced_bytes = 0
        self._segment: LogSegment | None = None
        self._records = 0
        self._last_offset = -1
        self._written: list[WrittenSegment] = []

    def append(self, batch: EncodedBatch) -> None:
        """Append a batch.

        Raises RecordListTooLargeError for a batch larger than a segment; ValueError for offsets that do not ascend, and
        for a batch with a producer id.
        """
        size = batch.size
        if batch.base_sequence >= 0:
            raise ValueError("whole segments hold batches without producer id only")
        if batch.base_offset <= self._last_offset:
            raise ValueError(f"offset {batch.base_offset} is not after {self._last_offset}")
        if size > self._config.segment_bytes:
            raise RecordListTooLargeError(
                f"{self._directory}: a batch of {size} bytes, but segments have at most {self._config.segment_bytes}"
            )
        segment = self._segment
        if segment is None or self._must_roll(segment, batch, size):
            self.roll()
            segment = self._begin(batch)
        facts = BatchFacts(batch.base_offset, batch.last_offset, batch.max_timestamp_ms, size, batch.leader_epoch)
        segment.append((batch.data,), size, (facts,))
        self._last_offset = batch.last_offset
        self._records += batch.records
        self._unsynced_bytes += size
        if self._unsynced_bytes >= _SYNC_BYTES:
            self._write_out(segment)

    def _write_out(self, segment: LogSegment) -> None:
        """Sync what was appended so far, unless an earlier sync is still running."""
        if self._sync and self._syncing is not None and all(sync.done() for sync in self._syncs):
            self._unsynced_bytes = 0
            self._syncs.append(self._syncing.submit(segment.file.sync))

    def roll(self) -> None:
        """End the current segment, if any. The next batch begins another."""
        segment = self._segment
        if segment is None:
            return
        segment.become_inactive()
        snapshot = self._directory / snapshot_file(self._last_offset + 1)
        with self._fs.open(snapshot, create=True) as file:
            file.write_at(encode_producers(()), 0)
        self._written.append(
            WrittenSegment(
                base_offset=segment.base_offset,
                last_offset=self._last_offset,
                max_timestamp_ms=segment.max_timestamp.timestamp_ms,
                size=segment.size_bytes,
                records=self._records,
                log=segment.log_path,
                offset_index=segment.offset_index_path,
                time_index=segment.time_index_path,
                snapshot=snapshot,
            )
        )
        if self._syncing is not None:
            self._syncs.append(self._syncing.submit(self._close, segment, snapshot))
        else:
            self._close(segment, snapshot)
        self._segment = None
        self._records = self._unsynced_bytes = 0

    def _close(self, segment: LogSegment, snapshot: Path) -> None:
        """Finish the files of a segment."""
        try:
            if self._sync:
                segment.flush()
                with self._fs.open(snapshot, write=True) as file:
                    file.sync()
        finally:
            segment.close()

    def _wait(self) -> None:
        """Wait for all work on `syncing`. Raise its first error."""
        syncs, self._syncs = self._syncs, []
        for sync in syncs:
            sync.exception()
        for sync in syncs:
            sync.result()

    def taken(self) -> Sequence[WrittenSegment]:
        """Return the segments that were finished since the last call. The caller owns them."""
        written, self._written = self._written, []
        return written

    def finish(self) -> Sequence[WrittenSegment]:
        """End the last segment. Return what `taken` has not returned yet."""
        self.roll()
        self._wait()
        if self._sync:
            self._fs.sync_dir(self._directory)
        return self.taken()

    def abort(self) -> None:
        """Remove what was written and not returned."""
        with suppress(OSError):
            self._wait()
        if self._segment is not None:
            self._segment.remove_files()
            self._segment.close()
            self._segment = None
        for written in self.taken():
            for path in written.files:
                self._fs.remove(path)

    def _begin(self, batch: EncodedBatch) -> LogSegment:
        segment = LogSegment.create(self._directory, batch.base_offset, self._config, clock=SYSTEM_CLOCK, fs=self._fs)
        self._segment = segment
        return segment

    def _must_roll(self, segment: LogSegment, batch: EncodedBatch, size: int) -> bool:
        config = self._config
        return (
            roll_reason(
                size=segment.size_bytes,
                incoming_size=size,
                segment_bytes_max=min(config.segment_bytes, segment.size_max),
                waited_ms=time_waited(
                    now_ms=SYSTEM_CLOCK.now_ms(),
                    first_batch_timestamp=segment.first_batch_timestamp,
                    created_ms=segment.created_ms,
                    incoming_max_timestamp=batch.max_timestamp_ms,
                ),
                segment_ms_max=segment_ms_max(config),
                indexes_full=segment.indexes_full,
                base_offset=segment.base_offset,
                incoming_last_offset=batch.last_offset,
            )
            is not None
        )
