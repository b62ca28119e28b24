"""What the offset index and the time index share: a mapped, preallocated file of fixed-size entries.

While its segment is active the file has its maximum size, zero behind the last entry; at roll and close it is cut to
its entries (`trim_to_valid_size`). A file that exists is taken to be full of entries, whatever they are. That is Kafka's
`AbstractIndex`. Whether they are right is asked at three depths: `check_ends` looks at size, first and last entry, which
costs the same for every index and so is done for each one when a log is opened; `sanity_check` looks at the order of all
entries, for an index that comes from elsewhere or is about to be copied; `index_check` holds all of them against the log.
Reads need neither: who follows an entry looks whether the batch that stands there fits it.

The zero tail is a hole in the file. A write through a map to a hole of a full disk would end the process (SIGBUS), so the
blocks for an entry are had from the file system before it is written: a full disk is an OSError, and no entry is added.

Thread safety: one writer at a time (the partition's lock); any number of readers at any time, without a lock. The map is
made at the first use and closed with the index; a use after that raises KafkaStorageError.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from stratalog.errors import CorruptIndexError, KafkaStorageError
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem, StrPath

Self_ = TypeVar("Self_", bound="IndexFile")

#: Offsets in an index are relative to the segment's base offset, in a signed 32-bit field.
RELATIVE_OFFSET_MAX = 0x7FFF_FFFF

#: Blocks are asked for in pieces of this size: seldom (every 1365 entries or so), and not much for a log that stays small.
_ALLOCATION_SIZE: Final = 16 * 1024
_PAGE_SIZE: Final = 4096


class IndexFile:
    """Entries of `entry_size` bytes, big-endian, ascending. `entries` of them are valid."""

    def __init__(
        self,
        path: StrPath,
        base_offset: int,
        entry_size: int,
        *,
        max_size: int,
        fs: FileSystem = REAL_FILESYSTEM,
        writable: bool = True,
    ) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.base_offset = base_offset
        self.entry_size = entry_size
        self.max_size = max_size
        self._fs = fs
        self._writable = writable
        self._map: mmap.mmap | None = None
        self._closed = False
        #: Up to here the file has blocks; entries that were there at the opening are not counted.
        self._allocated = 0
        self.length = self._create_or_measure()
        self.entries = 0 if self._created else self.length // entry_size
        self.max_entries = self.length // entry_size

    def _create_or_measure(self) -> int:
        """Size of the file in bytes, after making it at its full size if it was missing."""
        self._created = False
        try:
            return self._fs.size(self.path)
        except FileNotFoundError:
            if not self._writable:
                raise
        self._created = True
        if self.max_size < self.entry_size:
            raise ValueError(
                f"{self.path}: maximum size {self.max_size} holds no entry of {self.entry_size} bytes"
            )
        length = self.max_size // self.entry_size * self.entry_size
        with self._fs.open(self.path, create=True) as file:
            file.truncate(length)
        return length

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    @property
    def size_in_bytes(self) -> int:
        """Bytes that hold entries; the file may be longer (`length`)."""
        return self.entries * self.entry_size

    def can_append_offset(self, offset: int) -> bool:
        """Whether `offset` fits the 32-bit relative offset of this segment."""
        return 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def resize(self, new_size: int) -> bool:
        """Give the file the largest multiple of the entry size up to `new_size` bytes; whether that changed it.

        Entries stay; `new_size` must hold them. Used to open a segment for appends again.
        """
        rounded = new_size // self.entry_size * self.entry_size
        if rounded < self.size_in_bytes:
            raise ValueError(f"{self.path}: {rounded} bytes do not hold {self.entries} entries")
        if rounded == self.length:
            return False
        if not self._resize_map(rounded):
            self._unmap()
            with self._fs.open(self.path, write=True) as file:
                file.truncate(rounded)
        self.length = rounded
        self._allocated = min(self._allocated, rounded)
        self.max_entries = rounded // self.entry_size
        return True

    def trim_to_valid_size(self) -> None:
        """Cut the file to its entries (at roll, close, and before an upload)."""
        self.resize(self.size_in_bytes)

    def truncate(self) -> None:
        """Drop all entries; the file keeps its size."""
        self._truncate_to_entries(0)

    def reset(self) -> None:
        """Drop all entries and give the file its maximum size, all zeros, to be filled anew."""
        self.truncate()
        self.resize(0)
        self.resize(self.max_size)

    def flush(self) -> None:
        """Make the entries durable."""
        if self._map is not None:
            self._map.flush()
        with self._fs.open(self.path, write=True) as file:
            file.sync()

    def rename_to(self, path: StrPath) -> None:
        self._fs.rename(self.path, path)
        self.path = Path(path)

    def delete(self) -> None:
        """Close without trimming, and remove the file; one that is already gone is fine."""
        self.close_handles()
        self._fs.remove(self.path)

    def close(self) -> None:
        """Trim (if writable) and unmap. Harmless when closed already."""
        if not self._closed and self._writable:
            self.trim_to_valid_size()
        self.close_handles()

    def close_handles(self) -> None:
        """Unmap and leave the file as it is."""
        self._closed = True
        self._unmap()

    def __enter__(self: Self_) -> Self_:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {self.entries} of {self.max_entries} entries)"

    def _check_size(self) -> None:
        """Raise CorruptIndexError unless the file is made of whole entries."""
        if self.length % self.entry_size:
            raise CorruptIndexError(
                f"{self.path}: {self.length} bytes are no multiple of the entry size {self.entry_size}"
            )

    def _check_last_offset(self, offset: int) -> None:
        """Raise CorruptIndexError for an offset that no record of the segment can have."""
        if offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path}: last offset {offset} is less than base offset {self.base_offset}"
            )

    def _check_ends(self, is_ascending: bool, first: object, last: object) -> None:
        """Raise CorruptIndexError unless the last entry is larger than the first, as `is_ascending` tells."""
        if not is_ascending:
            raise CorruptIndexError(
                f"{self.path}: the last entry {last} is not larger than the first, {first}"
            )

    def _truncate_to_entries(self, entries: int) -> None:
        self.entries = entries

    def _allocate(self, size: int) -> None:
        """Have blocks for the first `size` bytes, of which those of the entries have theirs, and for some more."""
        start = self.size_in_bytes // _PAGE_SIZE * _PAGE_SIZE
        end = min(max(start + _ALLOCATION_SIZE, size), self.length)
        with self._fs.open(self.path, write=True) as file:
            file.allocate(start, end - start)
        self._allocated = end

    def _data(self) -> mmap.mmap:
        """The mapped file; only for an index of at least one entry's length."""
        data = self._map
        return data if data is not None else self._open_map()

    def _open_map(self) -> mmap.mmap:
        if self._closed:
            raise KafkaStorageError(f"{self.path}: the index is closed")
        with self._fs.open(self.path, write=self._writable) as file:
            size = file.size()
            if size < self.size_in_bytes:
                raise KafkaStorageError(
                    f"{self.path}: {size} bytes, expected at least {self.size_in_bytes}; something else has cut the index"
                )
            self._map = self._fs.map_file(file, self.length, write=self._writable)
        return self._map

    def _resize_map(self, size: int) -> bool:
        """Resize file and map together; False if that cannot be: nothing is mapped, or a reader's view holds the map."""
        if self._map is None or size == 0:
            return False
        try:
            self._map.resize(size)
        except BufferError:
            return False
        return True

    def _unmap(self) -> None:
        data, self._map = self._map, None
        if data is not None:
            try:
                data.close()
            except BufferError:
                return  # a batched lookup of another thread looks at it; it goes with the last view
