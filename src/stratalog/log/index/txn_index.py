"""`.txnindex`: the aborted transactions whose abort marker lies in a segment.

Entries of 34 bytes, big-endian:

    at  size  field
     0     2  version = 0
     2     8  producer id
    10     8  first offset of the transaction (it may lie in an earlier segment)
    18     8  last offset: that of the abort marker
    26     8  last stable offset at the time of the abort

Last offsets strictly ascend. The file is made with the first entry; most segments have none. A partial entry at the end
(a torn write) is not there for a reader and overwritten by the next append.
`docs/formats/txn_index.md` has a worked example. Kafka's `TransactionIndex` and `AbortedTxn`.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import Buffer

from stratalog.errors import CorruptIndexError
from stratalog.util import REAL_FILESYSTEM, File, FileSystem, StrPath

ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = ENTRY.size
VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction that ended in an abort. `last_offset` is its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedInRange(NamedTuple):
    """The aborted transactions of one segment for a fetch's range, and whether later segments cannot have more."""

    transactions: list[AbortedTransaction]
    is_complete: bool


def encode_entry(transaction: AbortedTransaction) -> bytes:
    return ENTRY.pack(VERSION, *transaction)


def decode_entries(data: Buffer, name: str = "transaction index") -> Iterator[AbortedTransaction]:
    """Yield every whole entry in `data`; CorruptIndexError for a version that is not known."""
    view = memoryview(data)
    whole = view.nbytes // ENTRY_SIZE * ENTRY_SIZE
    for slot, (version, *fields) in enumerate(ENTRY.iter_unpack(view[:whole])):
        if version > VERSION or version < 0:
            raise CorruptIndexError(
                f"aborted transaction at position {slot * ENTRY_SIZE} has version {version}, expected {VERSION}",
                where=name,
            )
        yield AbortedTransaction(*fields)


class TransactionIndex:
    """See the module. One writer at a time; readers at any time, without a lock."""

    def __init__(self, path: StrPath, base_offset: int, *, fs: FileSystem = REAL_FILESYSTEM) -> None:
        self.path = Path(path)
        self.base_offset = base_offset
        self._fs = fs
        #: Held while the file is opened or renamed.
        self._lock = threading.Lock()
        self._file: File | None = None
        self._size = 0
        self._last_offset: int | None = None
        with suppress(FileNotFoundError):
            self._size = fs.size(self.path) // ENTRY_SIZE * ENTRY_SIZE

    @property
    def exists(self) -> bool:
        return self._fs.exists(self.path)

    @property
    def size_in_bytes(self) -> int:
        return self._size

    @property
    def is_empty(self) -> bool:
        return self._size == 0

    @property
    def all(self) -> list[AbortedTransaction]:
        """Every entry, in order of the abort markers. CorruptIndexError for an unknown version."""
        return list(decode_entries(self._read(), str(self.path)))

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry; ValueError unless its last offset is larger than that of the entry before.

        After an OSError the file may end in part of an entry, until the next one or `truncate_to` any offset.
        """
        last_offset = self._last()
        if last_offset is not None and transaction.last_offset <= last_offset:
            raise ValueError(
                f"{self.path}: last offset {transaction.last_offset} of an aborted transaction is not larger than"
                f" the last, {last_offset}"
            )
        self._channel(create=True).write_at(encode_entry(transaction), self._size)
        self._size += ENTRY_SIZE
        self._last_offset = transaction.last_offset

    def collect(self, fetch_offset: int, upper_bound: int) -> AbortedInRange:
        """Return the aborted transactions that overlap offsets `fetch_offset` (inclusive) to `upper_bound` (exclusive).

        `is_complete` is set once an entry's last stable offset reaches the bound: transactions in later segments then
        began behind it.
        """
        found: list[AbortedTransaction] = []
        for transaction in decode_entries(self._read(), str(self.path)):
            if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_bound:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound:
                return AbortedInRange(found, True)
        return AbortedInRange(found, False)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries with last offsets >= `offset`."""
        for slot, transaction in enumerate(decode_entries(self._read(), str(self.path))):
            if transaction.last_offset >= offset:
                self._cut(slot * ENTRY_SIZE)
                return
        if self.exists and self._channel().size() > self._size:
            self._cut(self._size)

    def reset(self) -> None:
        """Drop all entries; the file stays, empty, if there was one."""
        if self.exists:
            self._cut(0)

    def sanity_check(self) -> None:
        """Raise CorruptIndexError for a partial entry, an unknown version or an entry that cannot be this segment's."""
        if self.exists and (size := self._channel().size()) % ENTRY_SIZE:
            raise CorruptIndexError(f"{self.path}: {size} bytes are no multiple of the entry size {ENTRY_SIZE}")
        before = self.base_offset - 1
        for transaction in self.all:
            if transaction.last_offset <= before:
                raise CorruptIndexError(
                    f"{self.path}: last offset of {transaction} is not larger than"
                    f" {'that of the entry before' if before >= self.base_offset else 'all before the segment'}, "
                    f"{before}"
                )
            before = transaction.last_offset

    def flush(self) -> None:
        if self._file is not None:
            self._file.sync()

    def rename_to(self, path: StrPath) -> None:
        with self._lock:
            if self.exists:
                self._fs.rename(self.path, path)
            self.path = Path(path)

    def hold_open(self) -> None:
        """See to it that the file can be read when it has lost its name."""
        if self._size:
            self._channel()

    def delete(self) -> None:
        """Close and remove the file; one that is already gone is fine."""
        self.close()
        self._fs.remove(self.path)

    def close(self) -> None:
        """Let go of the file. It is closed when the last reader has, and not under one that is reading."""
        self._file = None

    def _channel(self, *, create: bool = False) -> File:
        """Return the file, opened at its first use.

        Only an entry makes it, or a reader would bring back what was removed.
        """
        with self._lock:
            if self._file is None:
                self._file = self._fs.open(self.path, write=True, create=create)
            return self._file

    def _read(self) -> bytes:
        return self._channel().pread(self._size, 0) if self._size else b""

    def _last(self) -> int | None:
        if self._last_offset is None and self._size:
            last = self._channel().pread(ENTRY_SIZE, self._size - ENTRY_SIZE)
            self._last_offset = next(decode_entries(last, str(self.path))).last_offset
        return self._last_offset

    def _cut(self, size: int) -> None:
        self._channel().truncate(size)
        self._size = size
        self._last_offset = None
