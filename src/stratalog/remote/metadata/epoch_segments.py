"""The remote segments that have records of one leader epoch, arranged for lookups.

Kafka's `RemoteLogLeaderEpochState`.

What is readable is in two parts. `extents` are those that lookups use: strictly ascending both by start and by end, so
that of all segments that begin at or before an offset the last one reaches farthest. `covered` are those that lie
within one of them (after an election the new leader may copy again, in other segments, what its predecessor had
copied); they come back when what covers them is deleted. Which one is in which part depends on what is readable alone,
never on the order in which it came: of two with the same offsets the larger id covers the other. All other segments are
`unreadable`.

Segments go by the number of their UUID: per event this is a hot path. Not thread-safe.
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
    """See the module.

    `highest_offset` is the last offset that any finished segment has or had, None before the first.
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
        """Finish the copy of a segment; once for each."""
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
        """Index of that extent, -1 when all start after `offset`."""
        return bisect_right(self.extents, offset, key=_start) - 1

    def all(self) -> list[int]:
        """Return every segment, once."""
        return [*(extent.segment for extent in (*self.extents, *self.covered)), *self.unreadable]


def _same_offsets_but_smaller(one: Extent, other: Extent) -> bool:
    return one.start == other.start and one.end == other.end and one.segment < other.segment


def _start(extent: Extent) -> int:
    return extent.start


def _end(extent: Extent) -> int:
    return extent.end
