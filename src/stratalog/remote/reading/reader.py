"""Read from the remote tier by offset and by time, within the partition's current lineage of leader epochs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from stratalog.errors import (
    CorruptIndexError,
    CorruptRecordError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from stratalog.log.format import OffsetPosition, TimestampOffset
from stratalog.log.index import AbortedTransaction
from stratalog.records import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE_UP_TO_MAGIC,
    MAGIC,
    MAGIC_AT,
    RAISE_CUT,
    RecordBatch,
    batch_at,
    checked_batch_size,
    walk,
)
from stratalog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    is_within_lineage,
    lineage_of,
)
from stratalog.remote.reading.index_cache import RemoteIndexCache
from stratalog.remote.reading.segment_blocks import SegmentBlocks
from stratalog.remote.tier import LogView
from stratalog.util import crc32c

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_DAMAGE = (CorruptRecordError, CorruptIndexError, KafkaStorageError)

#: Bytes of one step of a walk over batches, whose blocks are then in memory.
_STEP_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class RemoteReadResult:
    """Whole batches with valid CRCs.

    The first one holds the requested offset, or else the next one.

    Empty with `throttled` when the fetch quota is used up: try again later.
    """

    records: bytes
    #: Aborted transactions that overlap the records. None unless requested.
    aborted: list[AbortedTransaction] | None = None
    throttled: bool = False


@dataclass(frozen=True, slots=True)
class _Batches:
    """Checked batches and their offsets, `next_offset` exclusive. No bytes when the first is too large."""

    records: bytes
    base_offset: int
    next_offset: int


class RemoteLogReader:
    """Thread-safe. Blocks on the store."""

    def __init__(
        self, metadata_manager: RemoteLogMetadataManager, index_cache: RemoteIndexCache, blocks: SegmentBlocks
    ) -> None:
        self._rlmm = metadata_manager
        self._indexes = index_cache
        self._blocks = blocks

    # --- by offset --------------------------------------------------------------------------------------------------

    def read(
        self,
        log: LogView,
        partition: TopicIdPartition,
        offset: int,
        max_bytes: int,
        *,
        min_one_message: bool = True,
        read_committed: bool = False,
    ) -> RemoteReadResult:
        """Return whole batches from the one with `offset` on, at most `max_bytes`, of one segment.

        With `min_one_message` at least one batch, however large. Raises OffsetOutOfRangeError when no finished segment
        of the lineage holds the offset, and RemoteStorageError.
        """
        segment = self._segment_for(log, partition, offset)
        if segment is None:
            raise _no_segment(log, partition, offset)
        while segment is not None:
            try:
                found = self._checked(
                    segment,
                    lambda s=segment: self._read_segment(  # type: ignore[misc]
                        log, s, offset, max_bytes, min_one_message
                    ),
                )
            except RemoteResourceNotFoundError:
                again = self._segment_for(log, partition, offset)
                if again is None:
                    raise _no_segment(log, partition, offset) from None  # it has just expired
                if again.segment_id == segment.segment_id:
                    raise
                segment = again
                continue
            if found is not None:
                is_held_back = not found.records  # as Kafka: then nothing is said of aborted transactions
                aborted = self._aborted(log, partition, found) if read_committed and not is_held_back else None
                return RemoteReadResult(found.records, aborted)
            segment = self._segment_for(log, partition, segment.end_offset + 1)  # compacted away in this one
        return RemoteReadResult(b"", [] if read_committed else None)

    def _segment_for(self, log: LogView, partition: TopicIdPartition, offset: int) -> RemoteLogSegmentMetadata | None:
        epoch = log.leader_epochs.epoch_for_offset(offset)
        return None if epoch is None else self._rlmm.remote_log_segment_metadata(partition, epoch, offset)

    def _read_segment(
        self,
        log: LogView,
        segment: RemoteLogSegmentMetadata,
        offset: int,
        max_bytes: int,
        min_one_message: bool,
    ) -> _Batches | None:
        """Return None when every batch of the segment ends before `offset`."""
        with self._indexes.indexes(segment) as indexes:
            indexed = indexes.offset_index.lookup(offset)
        for position, batch in self._walk(segment, indexed):
            if batch.last_offset < offset:
                continue
            if batch.size > max_bytes and not min_one_message:
                return _Batches(b"", batch.base_offset, batch.base_offset)
            end = position + max(batch.size, max_bytes)
            return _whole_batches(log, segment, _joined(self._blocks.read(segment, position, end)), position)
        return None

    # --- by time ----------------------------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, log: LogView, partition: TopicIdPartition, timestamp_ms: int, start_offset: int
    ) -> TimestampOffset | None:
        """Return the first remote record from `start_offset` on with a timestamp of at least `timestamp_ms`.

        Reads only below the local log. None if there is none there. Raises RemoteStorageError.
        """
        for segment in self._segments_from(log, partition, start_offset):
            if segment.start_offset >= log.local_log_start_offset:
                return None
            if segment.max_timestamp_ms < timestamp_ms:
                continue
            found = self._checked(
                segment,
                lambda s=segment: self._find_timestamp(  # type: ignore[misc]
                    s, timestamp_ms, start_offset
                ),
            )
            if found is not None:
                return found
        return None

    def _segments_from(
        self, log: LogView, partition: TopicIdPartition, start_offset: int
    ) -> list[RemoteLogSegmentMetadata]:
        """Return readable segments of the lineage that end at or after an offset, ascending."""
        lineage = lineage_of(log.leader_epochs.entries)
        first_epoch = log.leader_epochs.epoch_for_offset(start_offset)
        log_end = log.log_end_offset
        found = {
            segment.segment_id: segment
            for epoch in lineage
            if first_epoch is None or epoch >= first_epoch
            for segment in self._rlmm.list_remote_log_segments(partition, epoch)
            if segment.is_readable
            and segment.end_offset >= start_offset
            and is_within_lineage(segment, log_end, lineage)
        }
        return sorted(found.values(), key=lambda segment: segment.start_offset)

    def _find_timestamp(
        self, segment: RemoteLogSegmentMetadata, timestamp_ms: int, start_offset: int
    ) -> TimestampOffset | None:
        with self._indexes.indexes(segment) as indexes:
            by_time = indexes.time_index.lookup(timestamp_ms)
            indexed = indexes.offset_index.lookup(max(by_time.offset, start_offset))
        for _, batch in self._walk(segment, indexed):
            if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                batch.ensure_valid()
                for record in batch.records():
                    if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                        return TimestampOffset(record.timestamp_ms, record.offset)
        return None

    # --- segments ---------------------------------------------------------------------------------------------------

    def _walk(self, segment: RemoteLogSegmentMetadata, start: OffsetPosition) -> Iterator[tuple[int, RecordBatch]]:
        """Yield position and view of each batch from an index entry on. CorruptRecordError for invalid batches."""
        batches = walk(
            lambda size, position: _joined(self._blocks.read(segment, position, position + size)),
            segment.segment_size_bytes,
            start=start.position,
            on_damage=RAISE_CUT,
            window_size=_STEP_BYTES,
            name=segment.segment_id,
        )
        for position, batch in batches:
            if position == start.position:
                _check_entry(segment, start, batch)
            yield position, batch

    def _checked(self, segment: RemoteLogSegmentMetadata, read: Callable[[], _Result]) -> _Result:
        """Return the result of `read`. If the cached data are damaged, fetch everything again and repeat.

        If the stored indexes are damaged, repeat with indexes built from the records.
        """
        for mend in (self._fetch_again, self._rebuild_indexes):
            try:
                return read()
            except (*_DAMAGE, FileNotFoundError) as error:
                logger.warning("%s: its cached data are damaged: %s", segment.segment_id, error)
            mend(segment.segment_id.id)
        try:
            return read()
        except _DAMAGE as error:
            raise RemoteStorageError(f"remote segment {segment.segment_id} is damaged: {error}") from error

    def _fetch_again(self, segment_id: UUID) -> None:
        self._blocks.forget(segment_id.bytes)
        if not self._indexes.are_from_records(segment_id):
            self._indexes.invalidate(segment_id)

    def _rebuild_indexes(self, segment_id: UUID) -> None:
        self._blocks.forget(segment_id.bytes)
        if not self._indexes.are_from_records(segment_id):
            self._indexes.distrust(segment_id)

    # --- transactions -----------------------------------------------------------------------------------------------

    def _aborted(self, log: LogView, partition: TopicIdPartition, read: _Batches) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap the records read.

        Their markers may be in any later segment of either tier.
        """
        if not read.records:
            return []
        found: dict[AbortedTransaction, None] = {}
        for segment in self._segments_with_aborts(log, partition, read.base_offset):
            with self._indexes.indexes(segment) as indexes:
                part = indexes.txn_index.collect(read.base_offset, read.next_offset)
            found.update(dict.fromkeys(part.transactions))
            if part.is_complete:
                return list(found)
        for local in log.segments:
            part = local.txn_index.collect(read.base_offset, read.next_offset)
            found.update(dict.fromkeys(part.transactions))
            if part.is_complete:
                break
        return list(found)

    def _segments_with_aborts(
        self, log: LogView, partition: TopicIdPartition, offset: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        first_epoch = log.leader_epochs.epoch_for_offset(offset)
        for entry in log.leader_epochs.entries:
            if first_epoch is not None and entry.epoch < first_epoch:
                continue
            at = max(offset, entry.start_offset)
            while (segment := self._rlmm.next_segment_with_txn_index(partition, entry.epoch, at)) is not None:
                yield segment
                at = segment.end_offset + 1


def _no_segment(log: LogView, partition: TopicIdPartition, offset: int) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"{partition.topic}-{partition.partition}: offset {offset} (leader epoch "
        f"{log.leader_epochs.epoch_for_offset(offset)}) is in no finished segment of the remote tier"
    )


def _joined(pieces: Sequence[memoryview]) -> memoryview:
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


def _check_entry(segment: RemoteLogSegmentMetadata, entry: OffsetPosition, batch: RecordBatch) -> None:
    if entry.position and not batch.base_offset <= entry.offset <= batch.last_offset:
        raise CorruptIndexError(
            f"{segment.segment_id}: the index entry {entry} points at the batch with offsets {batch.base_offset} to "
            f"{batch.last_offset}"
        )


def _whole_batches(log: LogView, segment: RemoteLogSegmentMetadata, data: memoryview, position: int) -> _Batches:
    """Return the leading whole batches of `data` that belong to the log's lineage.

    `data` begins at `position` of the segment. Checks the CRC of every batch: CorruptRecordError.
    """
    # Plain ints from the header: this loop is most of the cost of a remote read.
    base_offset, next_offset, at = -1, -1, 0
    epoch, epoch_end = -1, -1
    limit = len(data)
    while limit - at >= HEADER_SIZE_UP_TO_MAGIC:
        end = at + checked_batch_size(data, at)
        if end > limit:
            break
        if data[at + MAGIC_AT] != MAGIC:  # format 0 or 1 has no leader epochs
            old = batch_at(data, at)
            old.ensure_valid()
            base_offset = old.base_offset if base_offset < 0 else base_offset
            next_offset, at = old.last_offset + 1, end
            continue
        header = HEADER.unpack_from(data, at)
        last_offset = header[0] + header[6]
        if last_offset >= epoch_end:
            epoch, epoch_end = _epoch_at(log, last_offset)
        if header[2] != epoch and header[2] >= 0:
            break  # an abandoned history begins here
        if crc32c(data[at + ATTRIBUTES_AT : end]) != header[4]:
            RecordBatch(data, at).ensure_valid()
        if base_offset < 0:
            base_offset = header[0]
        next_offset, at = last_offset + 1, end
    if base_offset < 0:
        raise OffsetOutOfRangeError(
            f"{segment.segment_id}: the records at position {position} are of no leader epoch that the partition had "
            "there"
        )
    return _Batches(bytes(data[:at]), base_offset, next_offset)


def _epoch_at(log: LogView, offset: int) -> tuple[int, int]:
    """Return the leader epoch of an offset (-1: unknown), and the offset where the next one begins."""
    epoch = log.leader_epochs.epoch_for_offset(offset)
    if epoch is None:
        return -1, offset + 1
    return epoch, log.leader_epochs.end_offset_for(epoch, log.log_end_offset)[1]
