"""The largest timestamp of a segment, for searches and retention, and its first one, for rolling.

The largest comes from the time index. In a segment found on disk this may have lost entries, so callers verify it with
the batches before an irreversible decision. Thread safety: any thread may read and verify while one writer appends.
"""

from __future__ import annotations

import threading
from typing import Final

from stratalog.errors import CorruptRecordError
from stratalog.log.format import TimestampOffset
from stratalog.log.segment.segment_reading import ReadableSegment
from stratalog.records import LOG_OVERHEAD, NO_TIMESTAMP

_UNKNOWN: Final = TimestampOffset(-2, -1)


class TimedSegment(ReadableSegment):
    """Timestamps of a segment. `is_new`: it has only batches that this process appends."""

    def __init__(self, *, is_new: bool) -> None:
        self._first_batch_timestamp: int | None = None
        self._max_timestamp: TimestampOffset = _UNKNOWN
        self._is_max_timestamp_proven = is_new
        self._max_timestamp_lock = threading.Lock()

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the first batch that has it; (-1, base offset) for none."""
        known = self._max_timestamp
        if known is _UNKNOWN:
            with self._max_timestamp_lock:
                known = self._max_timestamp
                if known is _UNKNOWN:
                    known = self._max_timestamp = self.time_index.last_entry
        return known

    def raise_max_timestamp(self, found: TimestampOffset) -> None:
        """Raise the largest timestamp to that of a batch. Of concurrent calls the larger one wins."""
        with self._max_timestamp_lock:
            known = self._max_timestamp
            if known is _UNKNOWN:
                known = self._max_timestamp = self.time_index.last_entry
            if found.timestamp_ms > known.timestamp_ms:
                self._max_timestamp = found

    def prove_max_timestamp(self) -> bool:
        """Verify from the batches that no record is newer than `max_timestamp`. Return whether one was.

        For irreversible decisions: the time index of a segment found on disk may have lost entries. Unreadable batches
        count as being as old as the file's modification time.
        """
        if self._is_max_timestamp_proven:
            return False
        before = self.max_timestamp
        found, is_complete = self._read_max_timestamp()
        self.raise_max_timestamp(found)
        if not is_complete:
            self.raise_max_timestamp(TimestampOffset(self.last_modified_ms, before.offset))
        self._is_max_timestamp_proven = True
        return self.max_timestamp != before

    def _read_max_timestamp(self) -> tuple[TimestampOffset, bool]:
        """Return the largest timestamp, and whether all batches were readable.

        The last time index entry if it is right, else the largest in the batches after it.
        """
        largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        end, size = 0, self.size_bytes
        try:
            entry = self.time_index.last_entry
            if self.time_index.entries and self.is_true_time(entry):
                found = self.translate_offset(entry.offset)
                if found is not None:
                    largest, end = entry, found.position
            for position, header in self.headers(end, size):
                if header[8] > largest.timestamp_ms:
                    largest = TimestampOffset(header[8], header[0] + header[6])
                end = position + header[1] + LOG_OVERHEAD
        except CorruptRecordError:
            return largest, False
        return largest, end == size

    def largest_timestamp(self) -> int:
        """Return the largest record timestamp, or the file's modification time if no record has one."""
        timestamp = self.max_timestamp.timestamp_ms
        return timestamp if timestamp >= 0 else self.last_modified_ms

    @property
    def last_modified_ms(self) -> int:
        return self.file.mtime_ms()

    @property
    def first_batch_timestamp(self) -> int | None:
        """The max timestamp of the first batch (-1: none, or damaged), or None for an empty segment."""
        if self._first_batch_timestamp is None and self.size_bytes:
            try:
                for _, header in self.headers():
                    self._first_batch_timestamp = header[8]
                    break
            except CorruptRecordError:
                self._first_batch_timestamp = NO_TIMESTAMP
        return self._first_batch_timestamp
