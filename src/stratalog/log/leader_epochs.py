"""Leader epochs and their start offsets, the cache behind `leader-epoch-checkpoint`. Kafka's `LeaderEpochFileCache`.

Invariant: epochs and start offsets both strictly ascend. An epoch covers the offsets from its start to the start of the
next one. Every change is on disk, durably, when the call returns.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from stratalog.log.format import EpochEntry, decode_epochs, encode_epochs
from stratalog.util import REAL_FILESYSTEM, FileSystem, StrPath, sync_file, write_atomic

UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1


class LeaderEpochCache:
    """Thread safety: reads see one consistent state without a lock; changes take turns."""

    def __init__(self, path: StrPath, fs: FileSystem = REAL_FILESYSTEM, *, durable: bool = True) -> None:
        """Read the file, or create it empty. Raises CorruptCheckpointError. `durable=False`: no sync before `sync`."""
        self.path = Path(path)
        self._fs = fs
        self._lock = threading.Lock()
        self._durable = durable
        #: Replaced, never changed: readers keep their tuple.
        self._entries: tuple[EpochEntry, ...] = ()
        if fs.exists(self.path):
            for entry in decode_epochs(fs.read_bytes(self.path), str(self.path)):
                self._entries = _with_entry(self._entries, entry)
        else:
            fs.open(self.path, create=True).close()

    @property
    def entries(self) -> list[EpochEntry]:
        return list(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        entries = self._entries
        return entries[-1].epoch if entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        entries = self._entries
        return entries[0] if entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Assign `epoch` from `start_offset` on, where its leader wrote or will write its first record.

        Nothing happens if it is the latest epoch and began no later. Contradicting entries (an epoch or a start offset
        that is not smaller) are removed. ValueError for a negative number.
        """
        self.assign_all((EpochEntry(epoch, start_offset),))

    def assign_all(self, entries: Iterable[EpochEntry]) -> None:
        """`assign` each, with one write of the file."""
        with self._lock:
            after = self._entries
            for entry in entries:
                after = _with_entry(after, entry)
            self._replace(after)

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch that wrote `offset`, or None before the first entry."""
        entries = self._entries
        at = bisect_right(entries, offset, key=_start_offset)
        return entries[at - 1].epoch if at else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch <= `epoch`, and the offset after its last record.

        The latest epoch ends at `log_end_offset`. Before the first known epoch: `epoch` itself and the start of the
        first one. (-1, -1) for an epoch above the latest, or -1.
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        higher = bisect_right(entries, epoch, key=_epoch)
        return (entries[higher - 1].epoch if higher else epoch), entries[higher].start_offset

    def previous_epoch(self, epoch: int) -> int | None:
        """Return the largest known epoch below `epoch`."""
        entries = self._entries
        at = bisect_left(entries, epoch, key=_epoch)
        return entries[at - 1].epoch if at else None

    def next_epoch(self, epoch: int) -> int | None:
        """Return the smallest known epoch above `epoch`."""
        entries = self._entries
        at = bisect_right(entries, epoch, key=_epoch)
        return entries[at].epoch if at < len(entries) else None

    def entries_up_to(self, offset: int) -> list[EpochEntry]:
        return list(_before(self._entries, offset))

    def entries_in_range(self, start_offset: int, end_offset: int) -> list[EpochEntry]:
        """Return the epochs of the offsets from `start_offset` (inclusive) to `end_offset` (exclusive).

        The first one begins at `start_offset` at the earliest. The result is copied to the remote tier with a segment.
        """
        return list(_before(_from(self._entries, start_offset), end_offset))

    def truncate_from_end(self, offset: int) -> None:
        """Drop the entries that begin at or after `offset`, where the log was cut. A negative offset does nothing."""
        with self._lock:
            if offset >= 0:
                self._replace(_before(self._entries, offset))

    def truncate_from_start(self, offset: int) -> None:
        """Drop epochs that ended before `offset`, the new log start. The epoch that wrote `offset` now begins there.

        Always durable: a checkpoint of the log start is trusted only if the epochs agree with it.
        """
        with self._lock:
            self._replace(_from(self._entries, offset), durable=True)

    def clear(self) -> None:
        with self._lock:
            self._replace(())

    def sync(self) -> None:
        """Make the file durable, after its directory was synced. From now on every change is."""
        with self._lock:
            if self._fs.exists(self.path):
                sync_file(self.path, self._fs)
            self._durable = True

    def __repr__(self) -> str:
        return f"LeaderEpochCache({str(self.path)!r}, {self._entries})"

    def _replace(self, entries: tuple[EpochEntry, ...], *, durable: bool = False) -> None:
        if entries != self._entries:
            write_atomic(self.path, encode_epochs(entries), self._fs, durable=durable or self._durable)
            self._entries = entries


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset


def _with_entry(entries: tuple[EpochEntry, ...], new: EpochEntry) -> tuple[EpochEntry, ...]:
    if new.epoch < 0 or new.start_offset < 0:
        raise ValueError(f"leader epoch entry {new}: both numbers must be from 0 up")
    if entries and new.epoch == entries[-1].epoch and new.start_offset >= entries[-1].start_offset:
        return entries
    keep = len(entries)
    while keep and (entries[keep - 1].epoch >= new.epoch or entries[keep - 1].start_offset >= new.start_offset):
        keep -= 1
    return (*entries[:keep], new)


def _before(entries: tuple[EpochEntry, ...], offset: int) -> tuple[EpochEntry, ...]:
    return entries[: bisect_left(entries, offset, key=_start_offset)]


def _from(entries: tuple[EpochEntry, ...], offset: int) -> tuple[EpochEntry, ...]:
    begun = bisect_right(entries, offset, key=_start_offset)
    if not begun:
        return entries
    return (EpochEntry(entries[begun - 1].epoch, offset), *entries[begun:])
