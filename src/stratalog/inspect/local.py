"""A partition directory from its files alone: segments, where they end, how old they are. Nothing is changed.

The largest timestamp of a segment is proven by its batches, as a broker proves it before it deletes: the time index may
have lost entries. With sound indexes that takes the headers behind the last index entry; else all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stratalog.errors import CorruptRecordError, UnsupportedForMessageFormatError
from stratalog.inspect.index_entries import offset_entries, time_entries
from stratalog.log import SegmentFiles, list_segments, scan_headers
from stratalog.log.format import OffsetPosition, detect_in_file
from stratalog.util import REAL_FILESYSTEM, File, FileSystem


@dataclass(frozen=True, slots=True)
class LocalSegment:
    """A segment of a partition directory. `end_offset` is behind its last record, or its last one before damage.

    `largest_timestamp_ms` is that of the records, or the file's time without any. `first_timestamp_ms` is that of the
    first batch, None where it has none. Times in milliseconds, sizes in bytes.
    """

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    first_timestamp_ms: int | None = None
    end_offset: int = -1

    def largest_timestamp(self) -> int:
        return self.largest_timestamp_ms


@dataclass(frozen=True, slots=True)
class LogOnDisk:
    """The segments of a directory, the active one last, and the offset behind the last record."""

    segments: tuple[LocalSegment, ...]

    @property
    def base_offset(self) -> int:
        return self.segments[0].base_offset if self.segments else 0

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0


def read_local_log(directory: Path, fs: FileSystem = REAL_FILESYSTEM) -> LogOnDisk:
    """Look at every segment. OSError; segments that are deleted at the same time are left out."""
    found: list[LocalSegment] = []
    for files in list_segments(directory, fs):
        try:
            found.append(read_local_segment(files, fs))
        except FileNotFoundError:
            continue
    return LogOnDisk(tuple(found))


def read_local_segment(files: SegmentFiles, fs: FileSystem = REAL_FILESYSTEM) -> LocalSegment:
    """Look at one segment. OSError."""
    with fs.open(files.log) as log:
        size = log.size()
        first = _first_timestamp(log)
        largest, end, is_whole = _tail(files, log, size, fs)
        if largest < 0 or not is_whole:
            # no record has a time, or some cannot be read: the file's own time stands for them
            largest = max(largest, log.mtime_ms())
        return LocalSegment(files.base_offset, size, largest, first, end)


def _first_timestamp(log: File) -> int | None:
    try:
        for _, batch in scan_headers(log):
            return batch.max_timestamp
    except (CorruptRecordError, UnsupportedForMessageFormatError):
        return None
    return None


def _tail(files: SegmentFiles, log: File, size: int, fs: FileSystem) -> tuple[int, int, bool]:
    """Return the largest timestamp, the offset behind the last record, and whether all batches could be read."""
    entry = _last_time(files, fs)
    if entry is not None:
        start = _position_before(files, entry[1], fs)
        largest, end, is_whole, is_proven = _walk(log, files.base_offset, start, size, entry)
        if is_proven:
            return largest, end, is_whole
    largest, end, is_whole, _ = _walk(log, files.base_offset, 0, size, None)
    return largest, end, is_whole


def _walk(
    log: File, base_offset: int, start: int, size: int, entry: tuple[int, int] | None
) -> tuple[int, int, bool, bool]:
    """Headers from `start` on: as `_tail`, and whether a batch with the entry's offset has the entry's timestamp."""
    largest, end, reached, is_proven = -1, base_offset, start, False
    try:
        for position, batch in scan_headers(log, start):
            if entry is not None and batch.base_offset <= entry[1] <= batch.last_offset:
                is_proven = batch.max_timestamp == entry[0]
            largest, end = max(largest, batch.max_timestamp), batch.last_offset + 1
            reached = position + batch.size
    except (CorruptRecordError, UnsupportedForMessageFormatError):
        return largest, end, False, is_proven
    return largest, end, reached == size, is_proven


def _last_time(files: SegmentFiles, fs: FileSystem) -> tuple[int, int] | None:
    try:
        entries = time_entries(files.timeindex, files.base_offset, fs)
    except OSError:
        return None
    return (entries[-1].timestamp_ms, entries[-1].offset) if entries else None


def _position_before(files: SegmentFiles, offset: int, fs: FileSystem) -> int:
    """Where a batch begins at or before the one with an offset."""
    try:
        found = detect_in_file(files.index, files.base_offset, fs=fs, log_path=files.log)
        if found.is_corrupt:
            return 0
        entries = offset_entries(files.index, files.base_offset, found.format, fs)
    except OSError:
        return 0
    before = [entry for entry in entries if entry.offset <= offset]
    # an entry has its batch's last offset, so the batch may hold the offset that is asked for
    return max(before, default=OffsetPosition(files.base_offset, 0), key=lambda e: e.offset).position
