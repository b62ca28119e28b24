"""A partition directory from its files alone: segments, where they end, how old they are. Nothing is changed.

The largest timestamp of a segment is proven by its batches, as a broker proves it before it deletes: the time index may
have lost entries. With sound indexes that takes the headers behind the last index entry; else all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stratalog.errors import CorruptRecordError
from stratalog.inspect.segment_end import read_segment_end, walk_to_end
from stratalog.log import SegmentFiles, list_segments, scan_headers
from stratalog.records import NO_TIMESTAMP
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
        end = read_segment_end(files, log, fs, may_lack_entries=True)
        if end.max_timestamp_ms is None:
            end = walk_to_end(log, 0, files.base_offset)
        largest = NO_TIMESTAMP if end.max_timestamp_ms is None else end.max_timestamp_ms
        if largest == NO_TIMESTAMP or end.end_position < size:
            # no record has a time, or some cannot be read: the file's own time stands for them
            largest = max(largest, log.mtime_ms())
        return LocalSegment(files.base_offset, size, largest, _first_timestamp(log), end.end_offset)


def _first_timestamp(log: File) -> int | None:
    try:
        for _, batch in scan_headers(log):
            return batch.max_timestamp
    except CorruptRecordError:
        return None
    return None
