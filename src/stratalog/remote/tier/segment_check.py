"""The look at a sealed segment before it is copied: what is damaged here must not become the only copy there.

The files are sent, so the files are looked at: what the log has of its indexes in memory says nothing of a disk that
lost or changed bytes since they were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stratalog.errors import CorruptIndexError, CorruptRecordError
from stratalog.log.index import OffsetIndex, TransactionIndex
from stratalog.log.segment import LogSegment
from stratalog.records import RAISE_CUT, RecordBatch, walk
from stratalog.remote.reading import open_offset_index, open_time_index
from stratalog.remote.storage import BLOCK_BYTES, BlockFacts, BlockFactsReader
from stratalog.util import REAL_FILESYSTEM, File, FileSystem

_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """What the records themselves say of a segment that is in order, and of their blocks."""

    size_bytes: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    block_facts: BlockFacts


def check_segment(segment: LogSegment, next_base_offset: int, *, fs: FileSystem = REAL_FILESYSTEM) -> CheckedSegment:
    """Read a sealed segment whole.

    Every batch's CRC, ascending offsets within the segment, indexes that point at batches.

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
    """Raise CorruptIndexError for a file that something else has cut or lengthened."""
    if found != expected:
        raise CorruptIndexError(f"{path}: {found} bytes, expected {expected}, the entries of a sealed segment")


def _check_batches(segment: LogSegment, next_base_offset: int, fs: FileSystem) -> CheckedSegment:
    path, size, file = segment.log_path, segment.size_bytes, segment.file
    if size == 0:
        raise CorruptRecordError(f"{path}: a sealed segment holds no batch")
    known = segment.offset_index
    with open_offset_index(known.path, segment.base_offset, known.entry_size, fs) as index:
        _check_size(known.path, index.length, known.size_in_bytes)
        entries = _IndexEntries(index)
    expected = segment.base_offset
    first_offset, max_timestamp = -1, -1
    blocks = BlockFactsReader(BLOCK_BYTES)
    for position, batch in _batches(file, size, blocks):
        if not batch.is_crc_valid:
            raise CorruptRecordError(
                f"{path}: the batch at position {position} with offsets {batch.base_offset} to {batch.last_offset} "
                f"does not match its CRC-32C {batch.crc:08x}"
            )
        if batch.base_offset < expected or batch.last_offset >= next_base_offset:
            raise CorruptRecordError(
                f"{path}: the batch at position {position} has offsets {batch.base_offset} to {batch.last_offset}, "
                f"expected them from {expected} on and below {next_base_offset}"
            )
        blocks.add_batch(position, batch)
        entries.check(position, batch.base_offset, batch.last_offset)
        first_offset = batch.base_offset if first_offset < 0 else first_offset
        expected = batch.last_offset + 1
        max_timestamp = max(max_timestamp, batch.max_timestamp)
    entries.check_end(size)
    return CheckedSegment(size, first_offset, expected - 1, max_timestamp, blocks.facts())


def _batches(file: File, size: int, blocks: BlockFactsReader) -> Iterator[tuple[int, RecordBatch]]:
    """Position and view of every batch; CorruptRecordError where there is none or the file ends within one."""

    def read(wanted: int, position: int) -> bytes:
        data = file.pread(wanted, position)
        blocks.add_bytes(memoryview(data))
        return data

    return walk(read, size, on_damage=RAISE_CUT, window_size=_CHUNK_BYTES, name=file.path)


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
