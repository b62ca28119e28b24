"""Offset and time indexes of either tier as arrays, for planning. Pure.

Planning uses indexes only to save work. A damaged, missing or preallocated one (with a zero tail) gives fewer entries
and a coarser plan, never a wrong one: readers check the batch at an entry's position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import Buffer

from stratalog.log.format import FORMATS, detect_from_entries, format_of, offset_table, time_table, used_size
from stratalog.log.index import ENTRY_SIZE as TIME_ENTRY_SIZE
from stratalog.records import BATCH_SIZE_MIN

Array = Any  # a one-dimensional numpy array of int64


@dataclass(frozen=True, slots=True)
class OffsetEntries:
    """Entries (offset, position), strictly ascending in both.

    The batch at `position` begins at or before `offset`, and every batch before it ends before `offset`.
    """

    offsets: Array
    positions: Array

    def __len__(self) -> int:
        return len(self.offsets)

    def position_before(self, offset: int) -> int:
        """Return the position of the last entry at or before `offset`, else 0: a scan from there finds `offset`."""
        slot = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return int(self.positions[slot]) if slot >= 0 else 0


@dataclass(frozen=True, slots=True)
class TimeEntries:
    """Entries (timestamp, offset), strictly ascending by time. No record up to `offset` is newer than `timestamp`."""

    timestamps_ms: Array
    offsets: Array

    def __len__(self) -> int:
        return len(self.offsets)


def offset_entries(data: Buffer, base_offset: int, log_size: int, entry_size: int | None = None) -> OffsetEntries:
    """Return the entries of an offset index for a `.log` of `log_size` bytes; none if it is damaged.

    `entry_size` is that of the manifest. Without it, the content shows the format.
    """
    if entry_size is not None:
        forms = [format_of(entry_size)]
    else:
        likely = detect_from_entries(data).format
        forms = [likely, *(form for form in FORMATS if form is not likely)]
    for form in forms:
        table = offset_table(data, form, memoryview(data).nbytes // form.entry_size)
        offsets, positions = table["offset"].astype(np.int64), table["position"].astype(np.int64)
        count = _ascending(offsets, positions)
        # All but the zero tail must be entries of this format, because a prefix of the other format may look like it.
        # The first entry has a batch before it, unless its position is 0.
        fits = count == 0 or ((positions[0] == 0 or positions[0] >= BATCH_SIZE_MIN) and positions[count - 1] < log_size)
        if count * form.entry_size >= used_size(data) and fits:
            return OffsetEntries(offsets[:count] + base_offset, positions[:count])
    return OffsetEntries(np.empty(0, np.int64), np.empty(0, np.int64))


def time_entries(data: Buffer, base_offset: int) -> TimeEntries:
    """Return the entries of a time index up to the first that is out of order."""
    table = time_table(data, memoryview(data).nbytes // TIME_ENTRY_SIZE)
    timestamps, offsets = table["timestamp"].astype(np.int64), table["offset"].astype(np.int64)
    count = len(table)
    if count:
        bad = np.flatnonzero((timestamps[1:] <= timestamps[:-1]) | (offsets[1:] < offsets[:-1]))
        count = int(bad[0]) + 1 if len(bad) else count
        if timestamps[0] <= 0 and offsets[0] == 0 and count == 1:  # nothing but a zero tail
            count = 0
        if count and (timestamps[0] < 0 or offsets[0] < 0):
            count = 0
    return TimeEntries(timestamps[:count], offsets[:count] + base_offset)


def _ascending(offsets: Array, positions: Array) -> int:
    """Return the length of the prefix that ascends strictly in both fields."""
    if len(offsets) == 0 or offsets[0] < 0 or positions[0] < 0:
        return 0
    if offsets[0] == 0 and positions[0] == 0 and (len(offsets) == 1 or offsets[1] == 0):
        return 0  # a zero tail from the start
    bad = np.flatnonzero((offsets[1:] <= offsets[:-1]) | (positions[1:] <= positions[:-1]))
    return int(bad[0]) + 1 if len(bad) else len(offsets)
