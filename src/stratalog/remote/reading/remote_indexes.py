"""The indexes of one remote segment as files on the local disk, and checks of their formats.

Stored offset indexes have entries of 8 or of 12 bytes, as in the copied segment. The copier may have recorded which
(`plugin.StoredSegment`); else the content decides. Both fields of the entries must ascend, and be within the segment if
its metadata are known. Read as 8-byte entries, an index of 12-byte entries descends by the third entry (the upper half
of a position is in the place of an offset), so the shorter format is tried first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from stratalog.errors import CorruptIndexError, RemoteStorageError
from stratalog.log.format import LARGE, LEGACY, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from stratalog.log.index import OffsetIndex, TimeIndex, TransactionIndex
from stratalog.remote.api import IndexType, RemoteLogSegmentMetadata
from stratalog.util import FileSystem

SUFFIXES = {
    IndexType.OFFSET: OFFSET_INDEX_SUFFIX,
    IndexType.TIMESTAMP: TIME_INDEX_SUFFIX,
    IndexType.TRANSACTION: TXN_INDEX_SUFFIX,
}

#: Entries checked to distinguish formats and kinds, besides the last one.
_PROBED_ENTRIES = 64

_Entry = TypeVar("_Entry")


class RemoteIndexes:
    """The three indexes of one remote segment. After `hold_open` they stay readable when their files are gone.

    `are_from_records`: offset and time index were rebuilt, because the stored ones are damaged. A damaged transaction
    index cannot be rebuilt from one segment, since its transactions may have begun earlier: reading it raises
    `txn_damage`.
    """

    def __init__(
        self,
        key: UUID,
        stem: Path,
        start_offset: int,
        entry_size: int,
        fs: FileSystem,
        *,
        are_from_records: bool = False,
        txn_damage: RemoteStorageError | None = None,
    ) -> None:
        self.key = key
        self._stem = stem
        self._fs = fs
        self.are_from_records = are_from_records
        self._txn_damage = txn_damage
        self.offset_index = open_offset_index(index_path(stem, IndexType.OFFSET), start_offset, entry_size, fs)
        self.time_index = open_time_index(index_path(stem, IndexType.TIMESTAMP), start_offset, fs)
        self._txn_index = TransactionIndex(index_path(stem, IndexType.TRANSACTION), start_offset, fs=fs)
        self.size_bytes = sum(fs.size(path) for path in self.paths() if fs.exists(path))
        # Used by the cache, under its lock.
        self.users = 0
        self.evicted = False
        self.used_at = 0.0

    @property
    def txn_index(self) -> TransactionIndex:
        """Return the transaction index. RemoteStorageError when the stored one is damaged."""
        if self._txn_damage is not None:
            raise self._txn_damage
        return self._txn_index

    def check(self) -> None:
        """Raise CorruptIndexError for damaged indexes."""
        self.offset_index.sanity_check()
        self.time_index.sanity_check()
        self._txn_index.sanity_check()

    def hold_open(self) -> None:
        """Open the files before they are renamed. Users of the indexes can read until `close`.

        A file that cannot be opened is an error of its next reader.
        """
        for index in (self.offset_index, self.time_index, self._txn_index):
            with suppress(OSError):
                index.hold_open()

    def close(self) -> None:
        self.offset_index.close()
        self.time_index.close()
        self._txn_index.close()

    def remove_files(self) -> None:
        for path in self.paths():
            self._fs.remove(path)

    def paths(self) -> list[Path]:
        return [index_path(self._stem, index_type) for index_type in SUFFIXES]


def index_path(stem: Path, index_type: IndexType) -> Path:
    """Return the file of an index beside the others of its segment."""
    return stem.with_name(stem.name + SUFFIXES[index_type])


def open_offset_index(path: Path, start_offset: int, entry_size: int, fs: FileSystem) -> OffsetIndex:
    return OffsetIndex(path, start_offset, max_size=0, fs=fs, writable=False, entry_size=entry_size)


def open_time_index(path: Path, start_offset: int, fs: FileSystem) -> TimeIndex:
    return TimeIndex(path, start_offset, max_size=0, fs=fs, writable=False)


def detect_entry_size(
    path: Path,
    start_offset: int,
    fs: FileSystem,
    *,
    metadata: RemoteLogSegmentMetadata | None = None,
    noted: int | None = None,
) -> int:
    """Return the entry size of an offset index file: `noted` if the content agrees, else the one that fits.

    CorruptIndexError when neither does. Without `metadata` entries are not compared with the segment.
    """
    for entry_size in (LEGACY.entry_size, LARGE.entry_size) if noted is None else (noted,):
        with open_offset_index(path, start_offset, entry_size, fs) as index:
            if _is_offset_index(index, metadata):
                return entry_size
    expected = "8 or 12" if noted is None else str(noted)
    raise CorruptIndexError(f"{path} is no offset index with entries of {expected} bytes")


def check_time_index(index: TimeIndex, metadata: RemoteLogSegmentMetadata) -> None:
    """Raise CorruptIndexError unless the entries fit the segment."""
    index.sanity_check()
    before = None
    for entry in _probed(index.entries, index.entry):
        if (before is not None and (entry.timestamp_ms <= before.timestamp_ms or entry.offset < before.offset)) or not (
            metadata.start_offset <= entry.offset <= metadata.end_offset
            and entry.timestamp_ms <= metadata.max_timestamp_ms
        ):
            raise CorruptIndexError(f"{index.path}: the entry {entry} does not belong to {metadata.segment_id}")
        before = entry


def _is_offset_index(index: OffsetIndex, metadata: RemoteLogSegmentMetadata | None) -> bool:
    try:
        index.sanity_check()
    except CorruptIndexError:
        return False
    before = (index.base_offset - 1, -1)
    for entry in _probed(index.entries, index.entry):
        if entry.offset <= before[0] or entry.position <= before[1]:
            return False
        if metadata is not None and (
            entry.offset > metadata.end_offset or entry.position >= metadata.segment_size_bytes
        ):
            return False
        before = entry
    return True


def _probed(entries: int, entry: Callable[[int], _Entry]) -> Iterator[_Entry]:
    for slot in range(min(entries, _PROBED_ENTRIES)):
        yield entry(slot)
    if entries > _PROBED_ENTRIES:
        yield entry(entries - 1)
