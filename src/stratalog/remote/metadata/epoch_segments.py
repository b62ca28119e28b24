"""The remote segments with records of one leader epoch, arranged for lookups.

Kafka's `RemoteLogLeaderEpochState`.

Readable segments are in two parts. `extents` are used by lookups: strictly ascending by start and by end, so of all
that begin at or before an offset the last one reaches farthest. `covered` segments are within one of these (after an
election the new leader may copy the same records again in other segments); they are used when the covering one is
deleted. The split depends only on what is readable, never on the order of events: of two with the same offsets the
larger id covers the other. All other segments are `unreadable`.

Segments are identified by the number of their UUID, since every event passes here. Not thread-safe.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple


class Extent(NamedTuple):
    """The offsets of one epoch in one readable segment, both ends inclusive."""

    start: int
    end: int
    segment: int


class EpochSegments:
    """The segments of one epoch.

    `highest_offset` is the last offset of any finished segment so far, None before the first.
    """

    __slots__ = ("covered", "extents", "highest_offset", "unreadable")

    def __init__(self) -> None:
        self.extents: list[Extent] = []
        self.covered: set[Extent] = set()
        self.unreadable: set[int] = set()
        self.highest_offset: int | None = None

    def started(self, segment: int) -> None:
        """Add a segment whose copy has begun."""
        self.unreadable.add(segment)

    def finished(self, extent: Extent) -> None:
        """Mark the copy of a segment as finished; once for each."""
        self.unreadable.discard(extent.segment)
        if self.highest_offset is None or extent.end > self.highest_offset:
            self.highest_offset = extent.end
        last = self.extents[-1] if self.extents else None
        if last is None or (last.start < extent.start and last.end < extent.end):
            self.extents.append(extent)
        else:
            self._place(extent)

    def deleting(self, extent: Extent) -> None:
        """Begin the deletion of a segment, readable or not."""
        self.unreadable.add(extent.segment)
        if extent in self.covered:
            self.covered.remove(extent)
            return
        at = bisect_left(self.extents, extent.start, key=_start)
        if at < len(self.extents) and self.extents[at] == extent:
            del self.extents[at]
            self._uncover(extent)

    def deleted(self, segment: int) -> None:
        self.unreadable.discard(segment)

    def _place(self, extent: Extent) -> None:
        at = bisect_right(self.extents, extent.start, key=_start)
        before = self.extents[at - 1] if at else None
        if before is not None and before.end >= extent.end and not _same_offsets_but_smaller(before, extent):
            self.covered.add(extent)
            return
        first = at - 1 if before is not None and before.start == extent.start else at
        last = bisect_right(self.extents, extent.end, lo=first, key=_end)
        self.covered.update(self.extents[first:last])
        self.extents[first:last] = [extent]

    def _uncover(self, gone: Extent) -> None:
        within = [known for known in self.covered if known.start >= gone.start and known.end <= gone.end]
        self.covered.difference_update(within)
        for extent in sorted(within):
            self._place(extent)

    def last_starting_at_or_before(self, offset: int) -> int:
        """Return the index of that extent, or -1 when all start after `offset`."""
        return bisect_right(self.extents, offset, key=_start) - 1

    def all(self) -> list[int]:
        return [*(extent.segment for extent in (*self.extents, *self.covered)), *self.unreadable]


def _same_offsets_but_smaller(one: Extent, other: Extent) -> bool:
    return one.start == other.start and one.end == other.end and one.segment < other.segment


def _start(extent: Extent) -> int:
    return extent.start


def _end(extent: Extent) -> int:
    return extent.end
