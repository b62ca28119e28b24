"""`.timeindex`: from a timestamp to an offset before which all records are older.

Entries of 12 bytes, big-endian:

    at  size  field
     0     8  timestamp in ms: the largest in the segment so far
     8     4  offset - base offset: of the record that has it

Invariant: timestamps strictly ascend, offsets do not descend. An entry (t, o) says that every record with a timestamp
above t lies behind o. `docs/formats/time_index.md` has a worked example. Kafka's `TimeIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from typing_extensions import Buffer

from stratalog.log.format import TimestampOffset
from stratalog.log.index.index_file import IndexFile
from stratalog.log.index.index_search import Array, count_up_to, look_up_many
from stratalog.util import REAL_FILESYSTEM, FileSystem, StrPath

ENTRY: Final = struct.Struct(">qi")
ENTRY_SIZE: Final = ENTRY.size
_TIMESTAMP: Final = struct.Struct(">q")
_RELATIVE_OFFSET: Final = struct.Struct(">i")
NO_TIMESTAMP: Final = -1
#: Below it, to import numpy takes longer than to do without.
_FAULTS_BY_NUMPY: Final = 20_000


def decode_entries(data: Buffer, base_offset: int) -> Iterator[TimestampOffset]:
    """Yield every whole entry in `data`, with absolute offsets; a partial one at the end is left out."""
    view = memoryview(data)
    whole = view.nbytes // ENTRY_SIZE * ENTRY_SIZE
    for timestamp_ms, relative in ENTRY.iter_unpack(view[:whole]):
        yield TimestampOffset(timestamp_ms, base_offset + relative)


def first_fault(data: Buffer, entries: int) -> int | None:
    """Return the first of `entries` entries that is wrong, or None.

    An entry is wrong when it is negative, or has a timestamp not above that of the one before, or a smaller offset.
    """
    if entries > _FAULTS_BY_NUMPY:
        from stratalog.log.format import first_not_ascending, time_table  # start-up cost

        table = time_table(data, entries)
        return first_not_ascending(table["timestamp"], table["offset"], is_second_strict=False)
    before = (-1, 0)
    for slot, entry in enumerate(ENTRY.iter_unpack(memoryview(data)[: entries * ENTRY_SIZE])):
        if entry[0] <= before[0] or entry[1] < before[1]:
            return slot
        before = entry
    return None


class TimeIndex(IndexFile[TimestampOffset]):
    """See the module, and `IndexFile` for life cycle and threads."""

    def __init__(
        self,
        path: StrPath,
        base_offset: int,
        *,
        max_size: int,
        fs: FileSystem = REAL_FILESYSTEM,
        writable: bool = True,
    ) -> None:
        super().__init__(path, base_offset, entry_size=ENTRY_SIZE, max_size=max_size, fs=fs, writable=writable)

    @property
    def is_full(self) -> bool:
        """One slot is kept back for the entry that is added when the segment rolls."""
        return self.entries >= self.max_entries - 1

    def maybe_append(self, timestamp_ms: int, offset: int, skip_full_check: bool = False) -> None:
        """Add an entry if its timestamp is larger than the last one's; an equal one adds nothing.

        `skip_full_check` also uses the slot that is kept back for the roll. ValueError for a smaller timestamp or
        offset than the last, for a full index, and for an offset that does not fit (`can_append_offset`). OSError on a
        full disk; nothing is added then.
        """
        entries = self.entries
        if entries >= self.max_entries - (not skip_full_check):
            raise ValueError(f"{self.path}: the time index is full with {entries} entries")
        last = self.last_entry
        if entries:
            if offset < last.offset:
                raise ValueError(f"{self.path}: offset {offset} is less than the last, {last.offset}")
            if timestamp_ms < last.timestamp_ms:
                raise ValueError(f"{self.path}: timestamp {timestamp_ms} is less than the last, {last.timestamp_ms}")
        if timestamp_ms <= last.timestamp_ms:
            return
        if not self.can_append_offset(offset):
            raise ValueError(f"{self.path}: offset {offset} does not fit with base offset {self.base_offset}")
        self._add(ENTRY.pack(timestamp_ms, offset - self.base_offset))
        self._last = TimestampOffset(timestamp_ms, offset)

    def _decoded(self, entry: Buffer, at: int = 0) -> TimestampOffset:
        timestamp_ms, relative = ENTRY.unpack_from(entry, at)
        return TimestampOffset(timestamp_ms, self.base_offset + relative)

    def __iter__(self) -> Iterator[TimestampOffset]:
        return decode_entries(self._copy(), self.base_offset)

    def lookup(self, target_ms: int) -> TimestampOffset:
        """Return the entry with the largest timestamp <= `target_ms`; (-1, base offset) if there is none."""
        entries = self.entries
        if not entries:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        last = self.last_entry
        if target_ms >= last.timestamp_ms:
            return last
        data = self._all()
        slot = self._count(data, _TIMESTAMP, target_ms) - 1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return self._decoded(data, slot * ENTRY_SIZE)

    def lookup_many(self, targets_ms: Array) -> tuple[Array, Array]:
        """`lookup` for an array of times.

        Arrays of timestamps and offsets, both of int64, in the order of the targets.
        """
        import numpy as np  # start-up cost

        timestamps, relative = look_up_many(self._copy(), ENTRY_SIZE, _TIMESTAMP.size, targets_ms)
        return timestamps, np.maximum(relative, 0) + self.base_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries with offsets >= `offset`."""
        if not self.entries:
            return
        before = offset - 1 - self.base_offset
        self._truncate_to_entries(
            count_up_to(self._all(), _RELATIVE_OFFSET, _TIMESTAMP.size, ENTRY_SIZE, self.entries, before)
        )

    def _ascends(self, first: TimestampOffset, last: TimestampOffset) -> bool:
        return first.timestamp_ms < last.timestamp_ms and first.offset <= last.offset

    def _first_fault(self) -> int | None:
        return first_fault(self._copy(), self.entries)

    @property
    def _none(self) -> TimestampOffset:
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)
