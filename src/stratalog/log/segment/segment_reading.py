"""Read-only access to a segment: batch headers, positions of offsets, timestamps.

Any thread may call this while one writer appends: `size_bytes` grows only after the bytes are written.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from stratalog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError
from stratalog.log.format import BatchPosition, FileSlice, FoundOffset, OffsetPosition, TimestampOffset
from stratalog.log.index import OffsetIndex, TimeIndex
from stratalog.records import (
    BATCH_SIZE_MIN,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    RecordBatch,
    batch_at,
)
from stratalog.records.legacy import find_header
from stratalog.util import File

logger = logging.getLogger(__name__)

#: Bytes of headers read from disk at once: the distance of two index entries, and some more.
_SCAN_CHUNK_SIZE: Final = 8192

_NO_HEADER: Final = (-1,) * 13

_unpack_header = HEADER.unpack_from


class ReadableSegment(ABC):
    """A read-only `.log` with its indexes. `LogSegment` provides the files and indexes."""

    base_offset: int
    log_path: Path
    #: Bytes of whole batches. Later bytes of the file are no part of the segment.
    size_bytes: int

    @property
    @abstractmethod
    def file(self) -> File:
        """The open `.log`. Hold it as long as it has to stay open."""

    @property
    @abstractmethod
    def offset_index(self) -> OffsetIndex:
        """The offset index, opened at its first use."""

    @property
    @abstractmethod
    def time_index(self) -> TimeIndex:
        """The time index, opened at its first use."""

    @property
    @abstractmethod
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the first batch that has it; (-1, base offset) for none."""

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield position and header fields (`batch_format.HEADER`) of each whole batch from `start` on, in order.

        Messages of formats 0 and 1 have the same fields, see `legacy_format.read_header`. Raises CorruptRecordError for
        bytes that are no batch header.
        """
        limit = self.size_bytes if end is None else min(end, self.size_bytes)
        pread = self.file.pread
        chunk, chunk_start, chunk_size = b"", start, 0
        position = start
        while position + BATCH_SIZE_MIN <= limit:
            at = position - chunk_start
            if at + HEADER_SIZE > chunk_size:
                chunk, chunk_start, at = pread(min(_SCAN_CHUNK_SIZE, limit - position), position), position, 0
                chunk_size = len(chunk)
            header = _unpack_header(chunk, at) if at + HEADER_SIZE <= chunk_size else _NO_HEADER
            if header[3] != MAGIC or header[1] < LENGTH_MIN:
                old = find_header(chunk, at, chunk_size)
                if old is None:
                    if header is _NO_HEADER:  # the beginning of a batch
                        return
                    raise self._no_header(position, header)
                header = old
            size = header[1] + LOG_OVERHEAD
            if position + size > limit:
                return
            yield position, header
            position += size

    def _no_header(self, position: int, header: tuple[int, ...]) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self.log_path}: position {position}: magic {header[3]} and length {header[1]}, expected {MAGIC} and at"
            f" least {LENGTH_MIN}"
        )

    def translate_offset(self, offset: int) -> BatchPosition | None:
        """Return the first batch that ends at or after `offset`, or None if all end before it.

        If an index entry does not match the batch at its position, the segment is searched from its start. Raises
        CorruptRecordError for damage on the way.
        """
        entry = self.offset_index.lookup(offset)
        try:
            return self._find_from(entry, offset)
        except CorruptRecordError:
            behind = self._batch_of_next_entry(entry, offset)
            if behind is None:
                raise
            return behind

    def _batch_of_next_entry(self, entry: OffsetPosition, offset: int) -> BatchPosition | None:
        """Return the batch of the index entry after `entry`, if it holds `offset`.

        Recovery adds an entry for the first batch after damage. Entries have last offsets, so `lookup` finds it too
        late.
        """
        following = self.offset_index.fetch_upper_bound(entry, 1)
        if following is None or not self.is_true_place(following):
            return None
        for position, header in self.headers(following.position):
            return self._batch_position(position, header) if header[0] <= offset else None
        return None

    def _find_from(self, entry: OffsetPosition, offset: int) -> BatchPosition | None:
        """Do `translate_offset` from the nearest index entry below."""
        if entry.position == 0:
            return self._find(offset, 0)
        last_offset = self._last_offset_at(entry.position)
        if last_offset == entry.offset:
            return self._find(offset, entry.position)
        if self.base_offset <= last_offset < entry.offset:  # old brokers wrote one entry for several batches
            with suppress(CorruptRecordError):
                found = self._find(offset, entry.position)
                # The entry claims that its own offset is there: returning a later batch would hide a loss.
                if found is None or offset > entry.offset or found.base_offset <= offset:
                    return found
        logger.warning(
            "%s: no batch at position %d ends at offset %d; searching without the index",
            self.offset_index.path,
            entry.offset,
            entry.position,
        )
        return self._find(offset, 0)

    def is_true_place(self, entry: OffsetPosition) -> bool:
        """Return whether the batch at the position of an offset index entry ends with the entry's offset."""
        return self._last_offset_at(entry.position) == entry.offset

    def _last_offset_at(self, position: int) -> int:
        """Return the last offset of the batch at `position`, or -1."""
        if 0 <= position < self.size_bytes:
            with suppress(CorruptRecordError):
                for _, header in self.headers(position):
                    return header[0] + header[6]
        return -1

    def _find(self, offset: int, start: int) -> BatchPosition | None:
        """Do `translate_offset` from the batch at `start` on."""
        size = self.size_bytes
        end, last_offset = start, -1
        for position, header in self.headers(start, size):
            if header[0] <= last_offset:
                raise self._no_order(position, header[0], last_offset)
            last_offset = header[0] + header[6]
            if last_offset >= offset:
                return self._batch_position(position, header)
            end = position + header[1] + LOG_OVERHEAD
        if end < size:
            raise CorruptRecordError(
                f"{self.log_path}: the batch at position {end} does not end within the file, which has {size} bytes"
            )
        return None

    def _no_order(self, position: int, offset: int, last_offset: int) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self.log_path}: position {position}: the batch begins at offset {offset}, but the one before ends at"
            f" {last_offset}"
        )

    def _batch_position(self, position: int, header: tuple[int, ...]) -> BatchPosition:
        size = header[1] + LOG_OVERHEAD
        is_wrapper = header[12] < 0 and header[3] != MAGIC
        base_offset = self._first_offset_within(position, size) if is_wrapper else header[0]
        return BatchPosition(base_offset, position, size)

    def _first_offset_within(self, position: int, size: int) -> int:
        """Return the first offset of a compressed message of an old format, which must be decompressed for it.

        Raises CorruptRecordError if that fails.
        """
        try:
            return self.read_batch(position, size).base_offset
        except (InvalidRecordError, UnsupportedCompressionTypeError, ValueError) as error:
            raise CorruptRecordError(f"{self.log_path}: position {position}: {error}") from error

    def read_batch(self, position: int, size: int) -> RecordBatch:
        return batch_at(self.file.pread(size, position))

    def slice(self, position: int, size: int) -> FileSlice:
        return FileSlice(self.file, position, size)

    def is_true_time(self, entry: TimestampOffset) -> bool:
        """Return whether the batch at the offset of a time index entry has its timestamp as the largest."""
        found = self.translate_offset(entry.offset)
        if found is None:
            return False
        for _, header in self.headers(found.position, found.position + found.size):
            return bool(header[8] == entry.timestamp_ms)
        return False

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """Return the first record from `start_offset` on with a timestamp of at least `timestamp_ms`.

        A time index entry that does not match its batch is ignored, and the whole segment is searched.
        """
        indexed = self.time_index.lookup(timestamp_ms)
        first = start_offset
        if indexed.timestamp_ms >= 0 or indexed.offset != self.base_offset:
            if self.is_true_time(indexed):
                first = max(indexed.offset, start_offset)
            else:
                logger.warning(
                    "%s: the entry %s is not true of the log; searching without the index",
                    self.time_index.path,
                    indexed,
                )
        found = self.translate_offset(first)
        if found is None:
            return None
        for position, header in self.headers(found.position):
            if header[8] >= timestamp_ms and header[0] + header[6] >= start_offset:
                batch = self.read_batch(position, header[1] + LOG_OVERHEAD)
                batch.ensure_valid()
                for record in batch.records():
                    if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                        return TimestampOffset(record.timestamp_ms, record.offset)
        return None

    def find_max_timestamp_record(self) -> FoundOffset | None:
        """Return the first record with the segment's largest timestamp, or None if no record has one.

        The leader epoch is that of the batch: the log may start after it, and then no longer knows the epoch.
        """
        largest = self.max_timestamp
        found = self.translate_offset(largest.offset) if largest.timestamp_ms >= 0 else None
        if found is None:
            return None
        for position, header in self.headers(found.position):
            if header[8] == largest.timestamp_ms:
                batch = self.read_batch(position, header[1] + LOG_OVERHEAD)
                batch.ensure_valid()
                for record in batch.records():
                    if record.timestamp_ms == largest.timestamp_ms:
                        return FoundOffset(record.timestamp_ms, record.offset, batch.partition_leader_epoch)
        return None

    def read_next_offset(self) -> int:
        """Return the offset after the last whole batch, or the base offset."""
        return self.read_end()[0]

    def read_end(self) -> tuple[int, int]:
        """Return the offset and the position after the last whole batch.

        Without a batch, the base offset and 0.
        """
        next_offset = self.base_offset
        end = start = self.offset_index.last_entry.position
        for position, header in self.headers(start):
            next_offset = header[0] + header[6] + 1
            end = position + header[1] + LOG_OVERHEAD
        return next_offset, end
