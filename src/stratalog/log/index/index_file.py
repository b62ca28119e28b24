"""The base of offset index and time index: a preallocated file of fixed-size entries.

While its segment is active the file has its maximum size, a hole behind the last entry; at roll and close it is cut to
its entries (`trim_to_valid_size`). A file that exists is taken to be full of entries, whatever they are. That is
Kafka's `AbstractIndex`. Whether they are right is asked at three depths: `check_ends` looks at size, first and last
entry, which costs the same for every index and so is done for each one when a log is opened; `sanity_check` looks at
the order of all entries, for an index that comes from elsewhere or is about to be copied; `jobs.index` holds all of
them against the log. Reads need neither: who follows an entry looks whether the batch that stands there fits it.

The file is never mapped: a map answers a full disk, a bad sector and a file that another process cut with SIGBUS, which
ends the process. Entries that are added are collected in memory and written in pieces of a page, and before anything
else is done to the file; so a full disk is an OSError, and what was added stays. An index is searched in a copy of all
its entries, which is read at the first search and may be dropped at any time (`index_memory`); first and last entry are
had from the file, which is open only while it is read or written. An index that is rebuilt (`reset`) is
written when it is complete, over the old content: on a full disk it needs no more room than it had.

Thread safety: one writer at a time (the partition's lock); any number of readers at any time, without a lock, and any
thread may rename, flush and close. A file that has gone is FileNotFoundError; a use after the close KafkaStorageError.
"""

from __future__ import annotations

import struct
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Generic, NamedTuple, Self, TypeVar

from typing_extensions import Buffer

from stratalog.errors import CorruptIndexError, KafkaStorageError
from stratalog.log.format import OffsetPosition, TimestampOffset
from stratalog.log.index.index_memory import INDEX_MEMORY
from stratalog.log.index.index_search import NativeCount, address_of, count_up_to, native_count, warm_from
from stratalog.util import REAL_FILESYSTEM, File, FileSystem, StrPath

EntryT = TypeVar("EntryT", bound=OffsetPosition | TimestampOffset)
#: In memory; never changed in place but by appends at the end.
Entries = bytes | bytearray

#: Offsets in an index are relative to the segment's base offset, in a signed 32-bit field.
RELATIVE_OFFSET_MAX = 0x7FFF_FFFF

#: Added entries are written in pieces of this size; and to read as much takes no longer than to read one entry.
_PAGE: Final = 4096


class PinnedEntries(NamedTuple):
    """A copy of all entries, whose address is valid while this is held."""

    data: bytes
    address: int
    entries: int
    warm_from: int
    search: NativeCount


class IndexFile(ABC, Generic[EntryT]):
    """Entries of `entry_size` bytes, big-endian, ascending. `entries` of them are valid."""

    def __init__(
        self,
        path: StrPath,
        base_offset: int,
        *,
        entry_size: int,
        max_size: int,
        fs: FileSystem = REAL_FILESYSTEM,
        writable: bool = True,
    ) -> None:
        """Open an index, or make it at `max_size` bytes (rounded down to whole entries) if it is missing.

        FileNotFoundError if it is missing and not `writable`.
        """
        self.path = path if isinstance(path, Path) else Path(path)
        self.base_offset = base_offset
        self.entry_size = entry_size
        self.max_size = max_size
        #: Asked and reset by `index_memory`.
        self.is_used = False
        self._fs = fs
        self._writable = writable
        #: Held while the file is opened or renamed, and for every change of the fields below.
        self._lock = threading.Lock()
        #: Entries that are not in the file yet, and the size of those before them, which are.
        self._tail = bytearray()
        self._written = 0
        #: What the file holds is none of the index any more.
        self._is_rebuilt = False
        self._is_synced = True
        #: A copy of all entries.
        self._loaded: Entries | None = None
        #: That copy for native loops, if nothing is added to it.
        self._pinned: PinnedEntries | None = None
        self._lent = 0
        self._held_open: File | None = None
        self._closed = False
        self._last: EntryT | None = None
        self.length = self._create_or_measure()
        self.entries = 0 if self._created else self.length // entry_size
        self.max_entries = self.length // entry_size
        self._written = self.size_in_bytes

    def _create_or_measure(self) -> int:
        """Size of the file in bytes, after making it at its full size if it was missing."""
        self._created = False
        try:
            return self._fs.size(self.path)
        except FileNotFoundError:
            if not self._writable:
                raise
        self._created = True
        self._is_synced = False
        if self.max_size < self.entry_size:
            raise ValueError(f"{self.path}: maximum size {self.max_size} holds no entry of {self.entry_size} bytes")
        length = self._length_max()
        with self._fs.open(self.path, create=True) as file:
            file.truncate(length)
        return length

    def _length_max(self) -> int:
        return self.max_size // self.entry_size * self.entry_size

    @property
    def is_full(self) -> bool:
        return self.entries >= self.max_entries

    @property
    def size_in_bytes(self) -> int:
        """Bytes that hold entries; the file may be longer (`length`)."""
        return self.entries * self.entry_size

    def can_append_offset(self, offset: int) -> bool:
        """Return whether `offset` fits the 32-bit relative offset of this segment."""
        return 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX

    # --- the file -----------------------------------------------------------------------------------------------------

    def resize(self, new_size: int) -> bool:
        """Give the file the largest multiple of the entry size up to `new_size` bytes; whether that changed it.

        Entries stay; `new_size` must hold them. Used to open a segment for appends again.
        """
        rounded = new_size // self.entry_size * self.entry_size
        if rounded < self.size_in_bytes:
            raise ValueError(f"{self.path}: {rounded} bytes do not hold {self.entries} entries")
        is_other = rounded != self.length
        if is_other or self._is_unwritten:
            with self._lock, self._open(write=True) as file:
                self._write_out(file, rounded)
            self._set_length(rounded)
        return is_other

    def trim_to_valid_size(self) -> None:
        """Cut the file to its entries (at roll, close, and before an upload)."""
        self.resize(self.size_in_bytes)

    def truncate(self) -> None:
        """Drop all entries; the file keeps its size."""
        self._truncate_to_entries(0)

    def reset(self) -> None:
        """Drop all entries and begin to rebuild the index, at its maximum size.

        The file stays as it is until `write_out`, or what comes with it: `flush`, `resize`, `trim_to_valid_size`,
        `close`.
        """
        self.truncate()
        self._is_rebuilt = True
        self._set_length(self._length_max())

    def write_out(self) -> None:
        """See to it that the file has all entries; OSError, and they stay in memory."""
        if self._is_unwritten:
            with self._lock, self._open(write=True) as file:
                self._write_out(file, self.length)

    def flush(self) -> None:
        with self._lock:
            if self._is_synced and not self._is_unwritten:
                return
            file = self._open(write=True)
            self._write_out(file, self.length)
            self._is_synced = True
        try:
            with file:
                file.sync()
        except BaseException:
            self._is_synced = False
            raise

    @property
    def _is_unwritten(self) -> bool:
        return bool(self._tail) or self._is_rebuilt

    def _write_out(self, file: File, length: int) -> None:
        """Write the entries that are not in the file yet, and give it this length. The lock is held."""
        tail, size = self._tail, file.size()
        end = self._written + len(tail)
        if self._is_rebuilt and size > end:
            file.truncate(end)  # first, and then over the old content, so that no extra disk space is needed
            size = end
        if tail:
            file.write_at(tail, self._written)
        if length != max(size, end):
            file.truncate(length)
        self._written, self._tail = end, bytearray()
        self._is_rebuilt = self._is_synced = False

    def _set_length(self, length: int) -> None:
        self.length = length
        self.max_entries = length // self.entry_size

    def rename_to(self, path: StrPath) -> None:
        with self._lock:
            self._fs.rename(self.path, path)
            self.path = Path(path)

    def hold_open(self) -> None:
        """Keep the file open until the close, so that it can be read when it has lost its name."""
        with self._lock:
            if self._held_open is None:
                self._held_open = self._open()

    def delete(self) -> None:
        """Close without trimming, and remove the file; one that is already gone is fine."""
        self.close_handles()
        self._fs.remove(self.path)

    def close(self) -> None:
        """Trim (if writable) and let go. Harmless when closed already."""
        if not self._closed and self._writable:
            self.trim_to_valid_size()
        self.close_handles()

    def close_handles(self) -> None:
        """Let go of what is in memory, and leave the file as it is."""
        with self._lock:
            self._closed = True
            self._held_open = None
            self.drop()
        INDEX_MEMORY.end(self)

    def _open(self, *, write: bool = False) -> File:
        """Return the file, under whatever name it has by now. The lock is held."""
        if self._closed:
            raise KafkaStorageError(f"{self.path}: the index is closed")
        return self._fs.open(self.path, write=write)

    # --- entries ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _decoded(self, entry: Buffer) -> EntryT:
        """Return the entry in these bytes."""

    @property
    @abstractmethod
    def _none(self) -> EntryT:
        """The value of the last entry when there is none."""

    @property
    def last_entry(self) -> EntryT:
        """The last entry; of an empty index (base offset, 0), or (-1, base offset)."""
        last = self._last
        if last is None:
            last = self._last = self.entry(self.entries - 1) if self.entries else self._none
        return last

    def entry(self, slot: int) -> EntryT:
        """Return the entry in a slot. Raises IndexError unless 0 <= slot < entries."""
        return self._decoded(self._at(slot))

    def append_packed(self, entries: bytes) -> None:
        """Add entries as the file has them. The caller knows that they follow on the last one.

        ValueError if there is no room for all of them; OSError, and none is added.
        """
        count = len(entries) // self.entry_size
        if not count:
            return
        if self.entries + count > self.max_entries:
            raise ValueError(
                f"{self.path}: {count} more entries do not fit; it has {self.entries} of {self.max_entries}"
            )
        self._add(entries, count)
        self._last = self._decoded(entries[-self.entry_size :])

    def _add(self, entry: bytes, count: int = 1) -> None:
        """Put an entry, or several, behind the last one; OSError, and it is not there."""
        if len(self._tail) >= _PAGE and not self._is_rebuilt:
            self.write_out()
        with self._lock:
            self._tail += entry
            loaded = self._loaded
            if loaded is not None:
                if isinstance(loaded, bytes):
                    loaded = self._loaded = bytearray(loaded)
                    self._pinned = None
                loaded += entry
                if len(loaded) > self._lent:
                    self._lent = 2 * len(loaded)
                    INDEX_MEMORY.lend(self, self._lent)
            self.entries += count

    def _all(self) -> Entries:
        """Return all entries, in memory; those that are added from now on may come to stand behind them."""
        loaded = self._loaded
        if loaded is None:
            loaded = self._load()
        self.is_used = True
        return loaded

    def _load(self) -> Entries:
        with self._lock:
            loaded = self._loaded
            if loaded is None:
                loaded = self._loaded = self._read((0, self.size_in_bytes))[0]
                self._lent = len(loaded)
                INDEX_MEMORY.lend(self, self._lent)
            return loaded

    def _count(self, data: Entries, key: struct.Struct, target: int) -> int:
        """Count the entries in `data`, which is `_all()`, with a key <= `target`; a key begins its entry."""
        pinned = self._pinned
        if pinned is None or pinned.data is not data:
            pinned = self._native_search(data)
        stride = self.entry_size
        if pinned is None:
            return count_up_to(data, key, 0, stride, len(data) // stride, target)
        return pinned.search(pinned.address, stride, key.size, pinned.entries, pinned.warm_from, target)

    def _native_search(self, data: Entries) -> PinnedEntries | None:
        """Return these entries for the native search; None while there is none, or entries may be added to them."""
        if isinstance(data, bytearray) or not data or (count := native_count()) is None:
            return None
        entries = len(data) // self.entry_size
        pinned = PinnedEntries(data, address_of(data), entries, warm_from(entries, self.entry_size), count)
        with self._lock:
            if self._loaded is data:
                self._pinned = pinned
        return pinned

    def drop(self) -> None:
        """Forget the copy of the entries."""
        self._loaded = self._pinned = None

    def _copy(self) -> bytes:
        """Return all entries as they are now; views of this one hinder no append."""
        return bytes(self._all())

    def _at(self, slot: int) -> Entries:
        """Return the bytes of an entry. Raises IndexError unless 0 <= slot < entries."""
        with self._lock:
            if 0 <= slot < self.entries:
                return self._read((slot * self.entry_size, self.entry_size))[0]
        raise IndexError(f"{self.path}: slot {slot} of {self.entries} entries")

    def _first_and_last(self) -> tuple[bytes, bytes]:
        """Return the bytes of these entries, at least one."""
        size = self.entry_size
        with self._lock:
            total = self.size_in_bytes
            if total <= _PAGE:
                all_entries = self._read((0, total))[0]
                return all_entries[:size], all_entries[-size:]
            first, last = self._read((0, size), (total - size, size))
            return first, last

    def _read(self, *ranges: tuple[int, int]) -> list[bytes]:
        """Return the bytes of entries, each range (position, size) by itself. The lock is held."""
        loaded, written = self._loaded, self._written
        if loaded is not None:
            return [bytes(loaded[position : position + size]) for position, size in ranges]
        file = self._held_open
        if file is None and any(position < written for position, _ in ranges):
            file = self._open()
        found = []
        for position, size in ranges:
            in_file = min(size, max(0, written - position))
            data = file.pread(in_file, position) if in_file and file is not None else b""
            if len(data) < in_file:
                raise KafkaStorageError(
                    f"{self.path}: {'no' if file is None else file.size()} bytes, expected at least {written};"
                    " something else has cut the index"
                )
            at = position + in_file - written
            found.append(data + self._tail[at : at + size - in_file] if in_file < size else data)
        return found

    def _truncate_to_entries(self, entries: int) -> None:
        size = entries * self.entry_size
        with self._lock:
            self._tail = self._tail[: max(0, size - self._written)]
            self._written = min(self._written, size)
            self.entries = entries
            self._last = None
            self.drop()

    # --- checks -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def _ascends(self, first: EntryT, last: EntryT) -> bool:
        """Return whether the second of two entries is larger than the first."""

    @abstractmethod
    def _first_fault(self) -> int | None:
        """Return the slot of the first entry that is not larger than the one before."""

    def check_ends(self) -> None:
        """Raise CorruptIndexError for damage that shows in size, first and last entry."""
        if self.length % self.entry_size:
            raise CorruptIndexError(
                f"{self.path}: {self.length} bytes are no multiple of the entry size {self.entry_size}"
            )
        if not self.entries:
            return
        first, last = map(self._decoded, self._first_and_last())
        self._last = last
        if last.offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path}: last offset {last.offset} is less than base offset {self.base_offset}"
            )
        if self.entries > 1 and not self._ascends(first, last):
            raise CorruptIndexError(f"{self.path}: the last entry {last} is not larger than the first, {first}")

    def sanity_check(self) -> None:
        """Raise CorruptIndexError unless the file is whole entries that ascend. All of them are looked at.

        Source: KIP-1333, "Corruption detection for ambiguous files".
        """
        self.check_ends()
        slot = self._first_fault()
        if slot is not None:
            before = self.entry(slot - 1) if slot else self._none
            raise CorruptIndexError(
                f"{self.path}: entry {slot}, {self.entry(slot)}, is not larger than the one before, {before}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {self.entries} of {self.max_entries} entries)"
