"""The three indexes of a segment as one: opened at first use, filled, truncated and renamed together.

Opening a log thus does not open thousands of index files. Thread safety: one writer at a time (the log's lock); any
thread may be the first to use an index.
"""

from __future__ import annotations

import threading
from pathlib import Path

from stratalog.errors import KafkaStorageError
from stratalog.log.format import (
    DELETED_SUFFIX,
    Detection,
    OffsetIndexFormat,
    TimestampOffset,
    detect_in_file,
    log_file,
    offset_index_file,
    time_index_file,
    txn_index_file,
)
from stratalog.log.index import OffsetIndex, TimeIndex, TransactionIndex
from stratalog.util import FileSystem


class SegmentIndexes:
    """The indexes of one segment. `new_format` is that of new offset indexes; an existing one keeps its format."""

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        suffix: str,
        size_max: int,
        fs: FileSystem,
        new_format: OffsetIndexFormat,
    ) -> None:
        self.base_offset = base_offset
        self._log_path = directory / (log_file(base_offset) + suffix)
        self.offset_path = directory / (offset_index_file(base_offset) + suffix)
        self.time_path = directory / (time_index_file(base_offset) + suffix)
        self.txn = TransactionIndex(directory / (txn_index_file(base_offset) + suffix), base_offset, fs=fs)
        self.size_max = size_max
        self._fs = fs
        self._new_format = new_format
        self._lock = threading.Lock()
        self._offset: OffsetIndex | None = None
        self._time: TimeIndex | None = None
        self._is_full: bool | None = None
        #: The segment is being removed: a late reader must not create a missing index again.
        self._is_going = False
        self._is_closed = False

    @property
    def offset(self) -> OffsetIndex:
        index = self._offset
        return index if index is not None else self._open_offset()

    @property
    def time(self) -> TimeIndex:
        index = self._time
        return index if index is not None else self._open_time()

    def _open_offset(self) -> OffsetIndex:
        with self._lock:
            if self._offset is None:
                self._check_open(self.offset_path)
                self._offset = OffsetIndex(
                    self.offset_path,
                    self.base_offset,
                    max_size=self.size_max,
                    fs=self._fs,
                    writable=not self._is_going,
                    entry_size=self._detect().format.entry_size,
                )
            return self._offset

    def _detect(self) -> Detection:
        """Return the format of the offset index on disk.

        The configured format if the file is new or implausible.
        """
        return detect_in_file(
            self.offset_path,
            self.base_offset,
            fs=self._fs,
            log_path=self._log_path,
            expected=self._new_format,
        )

    def _open_time(self) -> TimeIndex:
        with self._lock:
            if self._time is None:
                self._check_open(self.time_path)
                self._time = TimeIndex(
                    self.time_path,
                    self.base_offset,
                    max_size=self.size_max,
                    fs=self._fs,
                    writable=not self._is_going,
                )
            return self._time

    def _check_open(self, path: Path) -> None:
        if self._is_closed:
            raise KafkaStorageError(f"{path}: the segment is closed")

    @property
    def paths(self) -> tuple[Path, Path, Path]:
        """Offset index, time index, transaction index (which may not exist)."""
        return self.offset_path, self.time_path, self.txn.path

    @property
    def is_full(self) -> bool:
        """Whether offset or time index has no room for another entry."""
        known = self._is_full
        if known is None:
            known = self._is_full = self.offset.is_full or self.time.is_full
        return known

    def append(self, last_offset: int, position: int, largest: int, largest_offset: int) -> None:
        """Add an entry for the batch at `position`, with the largest timestamp up to it.

        The indexes must not be full.
        """
        self.offset.append(last_offset, position)
        self.time.maybe_append(largest, largest_offset)
        self._is_full = None

    def append_packed(self, offset_entries: bytes, time_entries: bytes) -> None:
        """Add encoded entries, in order and larger than the existing ones. The indexes must have room."""
        self.offset.append_packed(offset_entries)
        self.time.append_packed(time_entries)
        self._is_full = None

    def seal(self, max_timestamp: TimestampOffset) -> None:
        """Add the last time index entry and trim both files. Nothing more is appended."""
        self._is_full = None  # first: on a full disk, one may be trimmed and the other not
        if max_timestamp.timestamp_ms > self.time.last_entry.timestamp_ms:
            self.time.maybe_append(max_timestamp.timestamp_ms, max_timestamp.offset, skip_full_check=True)
        self.offset.trim_to_valid_size()
        self.time.trim_to_valid_size()

    def resize(self, size: int) -> None:
        """Make room for more entries, for the active segment."""
        self._is_full = None
        self.offset.resize(max(size, self.offset.size_in_bytes))
        self.time.resize(max(size, self.time.size_in_bytes))

    def truncate_to(self, offset: int) -> None:
        """Remove entries for offsets >= `offset`."""
        self._is_full = None
        self.offset.truncate_to(offset)
        self.time.truncate_to(offset)
        self.txn.truncate_to(offset)

    def reset(self) -> None:
        """Remove all entries. The offset index is created again in the configured format."""
        self._is_full = None
        self.offset.reset(self._new_format)
        self.time.reset()
        self.txn.reset()

    def write_out(self) -> None:
        """Write all entries to the files. On OSError they stay in memory."""
        for index in (self._offset, self._time):
            if index is not None:
                index.write_out()

    def flush(self) -> None:
        """Make the entries of all open indexes durable."""
        for index in (self._offset, self._time, self.txn):
            if index is not None:
                index.flush()

    def change_suffix(self, old: str, new: str) -> None:
        """Replace the suffix `old` of the files by `new`."""
        with self._lock:
            self._is_going = new == DELETED_SUFFIX
            self.txn.rename_to(with_suffix(self.txn.path, old, new))
            for index, path in ((self._offset, self.offset_path), (self._time, self.time_path)):
                target = with_suffix(path, old, new)
                if index is not None:
                    index.rename_to(target)
                elif self._fs.exists(path):
                    self._fs.rename(path, target)
            self.offset_path = with_suffix(self.offset_path, old, new)
            self.time_path = with_suffix(self.time_path, old, new)
            self._log_path = with_suffix(self._log_path, old, new)

    def release(self) -> None:
        """Close the indexes until their next use."""
        with self._lock:
            for index in (self._offset, self._time):
                if index is not None:
                    index.close_handles()
            self._offset = self._time = None

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for index in (self._offset, self._time):
                if index is not None:
                    index.close_handles()
        self.txn.close()


def with_suffix(path: Path, old: str, new: str) -> Path:
    """Return the path with the suffix `old` replaced by `new`; either may be empty."""
    return path.with_name(path.name.removesuffix(old) + new)
