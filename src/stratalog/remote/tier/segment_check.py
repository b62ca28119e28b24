"""Check a sealed segment before it is copied, so that damage does not reach the only remaining copy.

This reads the files, because they are sent: indexes in memory do not show bytes that the disk lost or changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stratalog.errors import CorruptIndexError, CorruptRecordError
from stratalog.log.format import OffsetPosition
from stratalog.log.index import OffsetIndex, TransactionIndex
from stratalog.log.segment import LogSegment
from stratalog.records import RAISE_CUT, RecordBatch, native, walk
from stratalog.remote.reading import open_offset_index, open_time_index
from stratalog.remote.storage import BLOCK_BYTES, BlockFacts, BlockFactsReader
from stratalog.util import REAL_FILESYSTEM, File, FileSystem

_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """What the records themselves say of a sound segment and its blocks."""

    size_bytes: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    block_facts: BlockFacts


def check_segment(segment: LogSegment, next_base_offset: int, *, fs: FileSystem = REAL_FILESYSTEM) -> CheckedSegment:
    """Read a whole sealed segment.

    Checks every batch's CRC, ascending offsets within the segment, and that indexes point to batches.

    Raises CorruptRecordError or CorruptIndexError naming the file, the position, and what was expected.
    """
    found = _check_batches(segment, next_base_offset, fs)
    _check_time_index(segment, next_base_offset, found.max_timestamp_ms, fs)
    _check_txn_index(segment, fs)
    return found


def _check_time_index(segment: LogSegment, next_base_offset: int, max_timestamp_ms: int, fs: FileSystem) -> None:
    known = segment.time_index
    with open_time_index(known.path, segment.base_offset, fs) as index:
        _check_size(known.path, index.length, known.size_in_bytes)
        index.sanity_check()
        last = index.last_entry
        if index.entries and (
            last.timestamp_ms > max_timestamp_ms or not segment.base_offset <= last.offset < next_base_offset
        ):
            raise CorruptIndexError(
                f"{known.path}: the last entry {last} does not fit records with largest timestamp "
                f"{max_timestamp_ms} and offsets {segment.base_offset} to {next_base_offset - 1}"
            )


def _check_txn_index(segment: LogSegment, fs: FileSystem) -> None:
    known = segment.txn_index
    index = TransactionIndex(known.path, segment.base_offset, fs=fs)
    try:
        index.sanity_check()
        _check_size(known.path, index.size_in_bytes, known.size_in_bytes)
    finally:
        index.close()


def _check_size(path: Path, found: int, expected: int) -> None:
    """Raise CorruptIndexError for a file that was cut or lengthened."""
    if found != expected:
        raise CorruptIndexError(f"{path}: {found} bytes, expected {expected}, the entries of a sealed segment")


def _check_batches(segment: LogSegment, next_base_offset: int, fs: FileSystem) -> CheckedSegment:
    path, size, file = segment.log_path, segment.size_bytes, segment.file
    if size == 0:
        raise CorruptRecordError(f"{path}: a sealed segment holds no batch")
    known = segment.offset_index
    with open_offset_index(known.path, segment.base_offset, known.entry_size, fs) as index:
        _check_size(known.path, index.length, known.size_in_bytes)
        index.sanity_check()
        entries = _IndexEntries(index)
    checked = _CheckedBatches(path, segment.base_offset, next_base_offset, entries)
    for position, batch in _batches(file, size, checked.windows(file, size), checked.blocks):
        checked.add(position, batch)
    entries.check_end(size)
    return CheckedSegment(
        size, checked.first_offset, checked.expected - 1, checked.max_timestamp, checked.blocks.facts()
    )


def _batches(file: File, size: int, start: int, blocks: BlockFactsReader) -> Iterator[tuple[int, RecordBatch]]:
    """Yield position and view of every batch. CorruptRecordError for an invalid or partial one."""

    def read(wanted: int, position: int) -> bytes:
        data = file.pread(wanted, position)
        blocks.add_bytes(memoryview(data))
        return data

    return walk(read, size, start=start, on_damage=RAISE_CUT, window_size=_CHUNK_BYTES, name=file.path)


class _CheckedBatches:
    """What is known of a segment's batches up to a position. All are sound so far."""

    def __init__(self, path: Path, base_offset: int, next_base_offset: int, entries: _IndexEntries) -> None:
        self.blocks = BlockFactsReader(BLOCK_BYTES)
        self.first_offset, self.expected, self.max_timestamp = -1, base_offset, -1
        self._path = path
        self._next_base_offset = next_base_offset
        self._entries = entries

    def windows(self, file: File, size: int) -> int:
        """Check batches of format 2 one window at a time, with native loops without the interpreter lock.

        Return where that stops: at the end, at a window with a fault, which `add` reports, or at a batch that the loops
        do not support, of an old format or larger than a window.
        """
        position = 0
        while position < size:
            data = memoryview(file.pread(min(_CHUNK_BYTES, size - position), position))
            rows, end, _ = native.header_scan.scan_window(data, position=position, with_crc=True)
            if not len(rows) or not self._are_in_order(rows) or not self._entries.fit(rows, end):
                break
            self.blocks.add_bytes(data[: end - position])
            self.blocks.add_rows(rows)
            if self.first_offset < 0:
                self.first_offset = int(rows["base_offset"][0])
            self.expected = int(rows["last_offset"][-1]) + 1
            self.max_timestamp = max(self.max_timestamp, int(rows["max_timestamp"].max()))
            position = end
        return position

    def _are_in_order(self, rows: Any) -> bool:
        first, last = rows["base_offset"], rows["last_offset"]
        return (
            bool((rows["is_sound"] == 1).all())
            and int(first[0]) >= self.expected
            and bool((first <= last).all() and (first[1:] > last[:-1]).all())
            and int(last[-1]) < self._next_base_offset
        )

    def add(self, position: int, batch: RecordBatch) -> None:
        """Check one batch. Raises CorruptRecordError or CorruptIndexError."""
        if not batch.is_crc_valid:
            raise CorruptRecordError(
                f"{self._path}: the batch at position {position} with offsets {batch.base_offset} to "
                f"{batch.last_offset} does not match its CRC-32C {batch.crc:08x}"
            )
        if batch.base_offset < self.expected or batch.last_offset >= self._next_base_offset:
            raise CorruptRecordError(
                f"{self._path}: the batch at position {position} has offsets {batch.base_offset} to "
                f"{batch.last_offset}, expected them from {self.expected} on and below {self._next_base_offset}"
            )
        self.blocks.add_batch(position, batch)
        self._entries.check(position, batch.base_offset, batch.last_offset)
        self.first_offset = batch.base_offset if self.first_offset < 0 else self.first_offset
        self.expected = batch.last_offset + 1
        self.max_timestamp = max(self.max_timestamp, batch.max_timestamp)


class _IndexEntries:
    """The offset index, compared with the batches in one pass. Its order was checked."""

    def __init__(self, index: OffsetIndex) -> None:
        self._path = index.path
        self._offsets, self._positions = index.arrays()
        self._at = 0

    def fit(self, rows: Any, end: int) -> bool:
        """Advance to the entries from position `end` on. Return whether those before match batches of these rows."""
        import numpy as np  # start-up cost

        upto = int(np.searchsorted(self._positions, end))
        positions, offsets = self._positions[self._at : upto], self._offsets[self._at : upto]
        found = rows[np.searchsorted(rows["position"][:-1], positions)]
        good = (found["position"] == positions) & (found["base_offset"] <= offsets) & (offsets <= found["last_offset"])
        if not good.all():
            return False
        self._at = upto
        return True

    def check(self, position: int, base_offset: int, last_offset: int) -> None:
        entry = self._next()
        if entry is None or entry.position > position:
            return
        if entry.position < position or not base_offset <= entry.offset <= last_offset:
            raise CorruptIndexError(
                f"{self._path}: the entry {entry} does not point at the batch at position {position} with "
                f"offsets {base_offset} to {last_offset}"
            )
        self._at += 1

    def check_end(self, size: int) -> None:
        entry = self._next()
        if entry is not None:
            raise CorruptIndexError(f"{self._path}: the entry {entry} points at no batch of {size} bytes of records")

    def _next(self) -> OffsetPosition | None:
        if self._at == len(self._positions):
            return None
        return OffsetPosition(int(self._offsets[self._at]), int(self._positions[self._at]))
