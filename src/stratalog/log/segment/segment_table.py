"""The segments of a log, in order: an immutable snapshot that is read without a lock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.log.segment.segment import LogSegment


class SegmentTable:
    """Segments by ascending base offset, the active one last. Writers replace the whole table."""

    __slots__ = ("_base_offsets", "all")

    def __init__(self, segments: tuple[LogSegment, ...]) -> None:
        self.all = segments
        self._base_offsets = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.all)

    def floor(self, offset: int) -> int:
        """Return the index of the last segment with a base offset <= `offset`, or -1."""
        return bisect_right(self._base_offsets, offset) - 1

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segments that may hold offsets >= `offset`: from the floor segment on, or all."""
        return self.all[max(self.floor(offset), 0) :]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all)

    def added(self, segment: LogSegment) -> SegmentTable:
        return SegmentTable((*self.all, segment))

    def without_first(self, count: int) -> SegmentTable:
        return SegmentTable(self.all[count:])
