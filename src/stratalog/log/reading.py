"""Find and read records of a log without its lock, unless a change intervenes.

Every read uses the segment table and the end that it finds at its start; concurrent appends, deletions and rolls change
neither. Segments leave the table before their files are renamed, so a missing file is looked up again in the new table.
Source: Kafka's `LocalLog.read` and `UnifiedLog.fetchOffsetByTimestamp`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from stratalog.errors import CorruptRecordError, OffsetOutOfRangeError
from stratalog.log.format import (
    FetchData,
    FileSlice,
    FoundOffset,
    Isolation,
    LogOffset,
    OffsetPosition,
    TimestampOffset,
)
from stratalog.log.index import AbortedTransaction
from stratalog.log.local_log import UNKNOWN_POSITION, LocalLog
from stratalog.log.segment import LogSegment, SegmentTable

_Found = TypeVar("_Found")


class _RowChanged(Exception):
    """The log end and the segment table disagree: a truncation ran between reading them."""


class Reader:
    """Reads for `PartitionLog`, whose methods of the same names describe them.

    If a truncation or the replacement of an empty active segment intervenes, the read is repeated with the log's lock
    held. Disk errors, and files closed during the read, raise KafkaStorageError.
    """

    def __init__(self, local: LocalLog, lock: AbstractContextManager[object]) -> None:
        self._local = local
        self._lock = lock

    def read(self, offset: int, max_bytes: int, isolation: Isolation, min_one_message: bool) -> FetchData:
        local = self._local
        truncations = local.truncations
        try:
            return _read(local, offset, max_bytes, isolation, min_one_message)
        except CorruptRecordError:
            if not self._was_truncated(truncations):
                raise
        except (FileNotFoundError, _RowChanged):
            pass  # repeated below
        except (ValueError, OSError) as error:
            raise self._refused(error) from error
        return self._alone(lambda: _read(local, offset, max_bytes, isolation, min_one_message))

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        return self._search(lambda local: _find_timestamp(local.segments, timestamp_ms, local.local_log_start_offset))

    def max_timestamp(self) -> FoundOffset | None:
        return self._search(lambda local: _find_max_timestamp(local.segments))

    def _search(self, search: Callable[[LocalLog], _Found | None]) -> _Found | None:
        local = self._local
        truncations = local.truncations
        if local.closed:
            raise local.unusable()
        try:
            return search(local)
        except CorruptRecordError:
            if not self._was_truncated(truncations):
                raise
        except FileNotFoundError:
            pass  # repeated below
        except (ValueError, OSError) as error:
            raise self._refused(error) from error
        return self._alone(lambda: search(local))

    def _was_truncated(self, truncations: int) -> bool:
        """Return whether a truncation was in progress when `truncations` was read, or began since."""
        return truncations % 2 == 1 or truncations != self._local.truncations

    def _alone(self, look: Callable[[], _Found]) -> _Found:
        """Call `look` with the log's lock held."""
        with self._lock:
            if self._local.closed:
                raise self._local.unusable()
            try:
                return look()
            except (ValueError, OSError) as error:
                raise self._refused(error) from error

    def _refused(self, error: ValueError | OSError) -> Exception:
        if self._local.closed:
            return self._local.unusable()
        return self._local.storage_error("read", error) if isinstance(error, OSError) else error


def _read(local: LocalLog, offset: int, max_bytes: int, isolation: Isolation, min_one_message: bool) -> FetchData:  # noqa: C901
    limit = _limit(local, isolation)
    segments = local.segments
    at = segments.floor(offset)
    if not local.log_start_offset <= offset <= local.end.offset or at < 0:
        if local.closed:
            raise local.unusable()
        raise OffsetOutOfRangeError(
            f"{local.name}: offset {offset} is not in the local log: it has offsets {local.log_start_offset} to"
            f" {local.end.offset}, from {local.local_log_start_offset} on locally"
        )
    if offset < limit.offset:
        for number, segment in enumerate(segments.all[at:], at):
            if segment.base_offset > limit.segment_base_offset:
                break
            is_last = segment.base_offset == limit.segment_base_offset
            # A cleaned, shorter segment may have replaced the one in which the limit was found.
            end = min(limit.position, segment.size_bytes) if is_last else segment.size_bytes
            found = segment.translate_offset(offset)
            if found is None:
                if not (is_last or local.config.compacted):
                    if number + 1 == len(segments):
                        raise _RowChanged
                    segment.sound.name_gap(offset, segments.all[number + 1].base_offset)
                continue
            if found.position >= end:
                continue
            start = LogOffset(found.base_offset, segment.base_offset, found.position)
            if found.size > max_bytes and not min_one_message:
                # as Kafka: where a batch is too large, nothing is said of aborted transactions, but for 0 bytes
                return _fetched(local, start, None, isolation, None if max_bytes > 0 else [])
            size = min(end - found.position, max(max_bytes, found.size))
            if found.position < segment.sound.unchecked_end:
                behind = segments.all[number + 1].base_offset if number + 1 < len(segments) else local.end.offset
                size = segment.sound.servable(segment.file, found.position, size, segment.size_bytes, behind)
            aborted: list[AbortedTransaction] = []
            if isolation is Isolation.TXN_COMMITTED:
                place = OffsetPosition(offset, found.position)
                aborted = _aborted_within(segments, segment, place, size, local.end.offset)
            return _fetched(local, start, segment.slice(found.position, size), isolation, aborted)
    start = LogOffset(offset, limit.segment_base_offset, limit.position)
    return _fetched(local, start, None, isolation, [])


def _fetched(
    local: LocalLog,
    start: LogOffset,
    part: FileSlice | None,
    isolation: Isolation,
    aborted: list[AbortedTransaction] | None,
) -> FetchData:
    return FetchData(
        start,
        part,
        aborted if isolation is Isolation.TXN_COMMITTED else None,
        local.high_watermark.offset,
        local.last_stable_offset,
        local.log_start_offset,
    )


def _limit(local: LocalLog, isolation: Isolation) -> LogOffset:
    """Return how far a read may go, with its position."""
    if isolation is Isolation.LOG_END:
        return local.end
    high_watermark = local.high_watermark
    if isolation is Isolation.TXN_COMMITTED:
        stable = local.last_stable_offset
        if stable < high_watermark.offset:
            return _locate(local, stable)
    if high_watermark.position == UNKNOWN_POSITION:
        return _locate(local, high_watermark.offset)
    return high_watermark


def _locate(local: LocalLog, offset: int) -> LogOffset:
    """Return where the batch with `offset` is, or would be."""
    end, segments = local.end, local.segments
    if offset >= end.offset:
        return end
    for segment in segments.from_offset(offset):
        found = segment.translate_offset(offset)
        if found is not None:
            return LogOffset(offset, segment.base_offset, found.position)
    return end


def _aborted_within(
    segments: SegmentTable, first: LogSegment, start: OffsetPosition, size: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap `size` bytes of segment `first` from `start` on."""
    index = segments.all.index(first)
    bound = first.offset_index.fetch_upper_bound(start, size)
    if bound is not None and first.is_true_place(bound):
        upper = bound.offset
    else:
        upper = segments.all[index + 1].base_offset if index + 1 < len(segments) else end_offset
    found: list[AbortedTransaction] = []
    for segment in segments.all[index:]:
        within = segment.txn_index.collect(start.offset, upper)
        found += within.transactions
        if within.is_complete:
            break
    return found


def _find_timestamp(segments: SegmentTable, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    """Return the first record from `start_offset` on with a timestamp of at least `timestamp_ms`, or None."""
    for segment in segments:
        is_there = segment.largest_timestamp() >= timestamp_ms
        if is_there or (segment.prove_max_timestamp() and segment.largest_timestamp() >= timestamp_ms):
            found = segment.find_timestamp(timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _find_max_timestamp(segments: SegmentTable) -> FoundOffset | None:
    """Return the first record with the largest timestamp, or None if no record has one."""
    largest: LogSegment | None = None
    for segment in segments:
        segment.prove_max_timestamp()
        if largest is None or segment.max_timestamp.timestamp_ms > largest.max_timestamp.timestamp_ms:
            largest = segment
    return None if largest is None else largest.find_max_timestamp_record()
