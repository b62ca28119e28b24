"""The end of one segment from its files: where its whole batches end, and how new its records are.

A running broker may append to the segment at the same time. With sound indexes the cost does not depend on the size of
the segment: a few headers near the end, each found by an index and proved by the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stratalog.errors import CorruptRecordError, KafkaError
from stratalog.inspect.index_entries import offset_entries
from stratalog.inspect.place import Mark
from stratalog.log import SegmentFiles, scan_headers
from stratalog.log.format import LARGE, LEGACY, detect_in_file
from stratalog.log.index import time_index
from stratalog.records import HEADER_SIZE, NO_TIMESTAMP, RecordBatch
from stratalog.util import File, FileSystem

#: Headers are looked for in steps of this size around an entry of a time index.
_PROOF_WINDOW: Final = 8 * 1024

#: A batch that misses at least this many bytes at its end counts as torn, not as damaged.
_TORN_ZEROS: Final = 16


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """The end of the whole batches of a `.log`, their newest timestamp, and the `mark` of the last one.

    The timestamp is NO_TIMESTAMP where no batch has one, and None where neither the batches that were read nor the
    time index prove it. `damage` describes the bytes behind the end, unless a crash or a write in progress explains
    them.
    """

    end_position: int
    end_offset: int
    max_timestamp_ms: int | None
    damage: str | None = None
    mark: Mark | None = None


def read_segment_end(files: SegmentFiles, log: File, fs: FileSystem, *, may_lack_entries: bool = False) -> SegmentEnd:
    """Read the end of a segment, by its indexes where the log proves them. OSError.

    `may_lack_entries` is for callers that would delete by the newest timestamp: a time index whose last entry is not
    near the end may have lost later ones, and then proves nothing.
    """
    position, base_offset = _near_end(files, log, fs)
    end = walk_to_end(log, position, base_offset)
    if end.mark is None and position:  # the one batch from there on is torn
        position, base_offset = 0, files.base_offset
        end = walk_to_end(log, position, base_offset)
    if not position:
        return end
    entry = _last_time(files, fs)
    if entry is None or (may_lack_entries and entry[1] < base_offset):
        return replace(end, max_timestamp_ms=None)
    timestamp_ms, offset = entry
    if offset < base_offset:  # seldom: the newest record is not near the end
        position = _position_before(files, offset, fs)
    if not proves_timestamp(log, position, timestamp_ms, offset):
        return replace(end, max_timestamp_ms=None)
    newest = NO_TIMESTAMP if end.max_timestamp_ms is None else end.max_timestamp_ms
    return replace(end, max_timestamp_ms=max(timestamp_ms, newest))


def walk_to_end(log: File, start: int, base_offset: int) -> SegmentEnd:
    """Walk the headers from `start`, where a batch with `base_offset` begins.

    Torn, and left out: an incomplete batch; zeros (preallocation, or pages that never reached the disk); a last batch
    whose CRC fails because it ends in zeros. Any other batch counts by its header, and is checked when it is read.
    """
    size = log.size()
    end = SegmentEnd(start, base_offset, NO_TIMESTAMP)
    newest = NO_TIMESTAMP
    before, last, damage = end, None, None
    position_before, at = -1, -1
    try:
        for position, batch in scan_headers(log, start, size):
            before, position_before, at, last = end, at, position, batch.size
            newest = max(newest, batch.max_timestamp)
            end = SegmentEnd(position + batch.size, batch.next_offset, newest)
    except CorruptRecordError as error:
        if any(log.pread(HEADER_SIZE, end.end_position)):
            damage = str(error)
    if last is not None and _is_torn(log.pread(last, at)):
        end, at = before, position_before
    mark = None if at < 0 else Mark(at, log.pread(min(HEADER_SIZE, end.end_position - at), at))
    return replace(end, damage=damage, mark=mark)


def _near_end(files: SegmentFiles, log: File, fs: FileSystem) -> tuple[int, int]:
    """Return position and base offset of a batch near the end, found by the offset index and proved by its header.

    Without one, the beginning of the file.
    """
    for form in (LEGACY, LARGE):
        entry = _last_entry(files.index, form.entry_size, fs)
        if entry is None:
            continue
        relative, position = form.entry.unpack(entry)
        if 0 < position <= files.size - HEADER_SIZE and relative > 0:
            header = log.pread(HEADER_SIZE, position)
            batch = RecordBatch(header) if len(header) == HEADER_SIZE else None
            if batch and batch.magic == 2 and 0 < batch.base_offset - files.base_offset <= relative:
                return position, batch.base_offset
    return 0, files.base_offset


def _last_time(files: SegmentFiles, fs: FileSystem) -> tuple[int, int] | None:
    """Return timestamp and offset of the last entry of the time index."""
    entry = _last_entry(files.timeindex, time_index.ENTRY_SIZE, fs)
    if entry is None:
        return None
    timestamp_ms, relative = time_index.ENTRY.unpack(entry)
    return timestamp_ms, files.base_offset + relative


def _position_before(files: SegmentFiles, offset: int, fs: FileSystem) -> int:
    """Return where a batch begins at or before the one with this offset."""
    found = detect_in_file(files.index, files.base_offset, fs=fs, log_path=files.log)
    if found.is_corrupt:
        return 0
    entries = offset_entries(files.index, files.base_offset, found.format, fs)
    before = [each for each in entries if each.offset <= offset]
    # An entry has its batch's last offset, so the batch may hold the offset that is asked for.
    return max(before, key=lambda each: each.offset).position if before else 0


def _last_entry(index: Path, entry_size: int, fs: FileSystem) -> bytes | None:
    """Return the last entry of an index file that is not part of a zero tail."""
    try:
        with fs.open(index) as file:
            return _last_nonzero(file, file.size() // entry_size, entry_size)
    except FileNotFoundError:
        return None


def _last_nonzero(file: File, entries: int, entry_size: int) -> bytes | None:
    """Return the last entry with any bit set, by bisection: a preallocated index is zero after its entries."""
    if entries and any(last := file.pread(entry_size, (entries - 1) * entry_size)):
        return last
    low, high = 0, entries  # the slots before `low` are used, those from `high` on are not
    while low < high:
        middle = (low + high) // 2
        if any(file.pread(entry_size, middle * entry_size)):
            low = middle + 1
        else:
            high = middle
    return file.pread(entry_size, (low - 1) * entry_size) if low else None


def _is_torn(batch: bytes) -> bool:
    """Return whether the last pages of this batch were never written: its CRC fails, and its last bytes are zero."""
    return not any(batch[-_TORN_ZEROS:]) and not RecordBatch(batch).is_crc_valid


def proves_timestamp(log: File, position: int, timestamp_ms: int, offset: int) -> bool:
    """Return whether the batch that holds the offset of a time index entry has the entry's timestamp as its newest.

    A batch at or before that one begins at `position`.
    """
    try:
        for _, batch in scan_headers(log, position, window_size=_PROOF_WINDOW):
            if batch.next_offset > offset:
                return batch.base_offset <= offset and batch.max_timestamp == timestamp_ms
    except KafkaError:
        return False
    return False
