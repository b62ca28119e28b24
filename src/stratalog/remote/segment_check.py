"""The look at a sealed segment before it is copied: what is damaged here must not become the only copy there."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.errors import CorruptIndexError, CorruptRecordError
from stratalog.log.offset_index import OffsetIndex
from stratalog.log.segment import LogSegment
from stratalog.records.batch import iter_batches
from stratalog.util.filesystem import File

_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """What the records themselves say of a segment that is in order."""

    size_bytes: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int


def check_segment(segment: LogSegment, next_base_offset: int) -> CheckedSegment:
    """Read a sealed segment whole: every batch's CRC, ascending offsets within the segment, indexes that point at batches.

    Raises CorruptRecordError or CorruptIndexError naming the file, the position, and what was expected.
    """
    found = _check_batches(segment, next_base_offset)
    segment.time_index.sanity_check()
    last = segment.time_index.last_entry
    if segment.time_index.entries and (
        last.timestamp_ms > found.max_timestamp_ms
        or not segment.base_offset <= last.offset < next_base_offset
    ):
        raise CorruptIndexError(
            f"{segment.time_index_path}: the last entry {last} does not fit records with largest timestamp "
            f"{found.max_timestamp_ms} and offsets {segment.base_offset} to {next_base_offset - 1}"
        )
    segment.txn_index.sanity_check()
    return found


def _check_batches(segment: LogSegment, next_base_offset: int) -> CheckedSegment:
    path, size, file = segment.log_path, segment.size_bytes, segment.file
    if size == 0:
        raise CorruptRecordError(f"{path}: a sealed segment holds no batch")
    entries = _IndexEntries(segment.offset_index)
    position, expected = 0, segment.base_offset
    first_offset, max_timestamp = -1, -1
    while position < size:
        data = _whole_batches(file, position, size)
        for batch in iter_batches(data):
            at = position + batch.start
            batch.ensure_valid()
            if batch.base_offset < expected or batch.last_offset >= next_base_offset:
                raise CorruptRecordError(
                    f"{path}: the batch at position {at} has offsets {batch.base_offset} to {batch.last_offset}, expected "
                    f"them from {expected} on and below {next_base_offset}"
                )
            entries.check(at, batch.base_offset, batch.last_offset)
            first_offset = batch.base_offset if first_offset < 0 else first_offset
            expected = batch.last_offset + 1
            max_timestamp = max(max_timestamp, batch.max_timestamp)
            consumed = batch.start + batch.size
        position += consumed
    entries.check_end(size)
    return CheckedSegment(size, first_offset, expected - 1, max_timestamp)


def _whole_batches(file: File, position: int, size: int) -> bytes:
    """A piece of the file that holds at least one whole batch; CorruptRecordError when the file ends within one."""
    length = _CHUNK_BYTES
    while True:
        data = file.pread(min(length, size - position), position)
        if next(iter_batches(data), None) is not None:
            return data
        if length >= size - position or len(data) < min(length, size - position):
            raise CorruptRecordError(f"{file.path}: the batch at position {position} is not whole")
        length *= 2


class _IndexEntries:
    """The offset index, walked beside the batches: every entry stands for one of them."""

    def __init__(self, index: OffsetIndex) -> None:
        index.sanity_check()
        self._path = index.path
        self._entries = iter(index)
        self._next = next(self._entries, None)

    def check(self, position: int, base_offset: int, last_offset: int) -> None:
        entry = self._next
        if entry is None or entry.position > position:
            return
        if entry.position < position or not base_offset <= entry.offset <= last_offset:
            raise CorruptIndexError(
                f"{self._path}: the entry {entry} does not point at the batch at position {position} with "
                f"offsets {base_offset} to {last_offset}"
            )
        self._next = next(self._entries, None)

    def check_end(self, size: int) -> None:
        if self._next is not None:
            raise CorruptIndexError(
                f"{self._path}: the entry {self._next} points at no batch of {size} bytes of records"
            )
