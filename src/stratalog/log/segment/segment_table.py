"""The segments of a log, in order: an immutable snapshot that readers take without a lock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.log.segment.segment import LogSegment


class SegmentTable:
    """Segments by ascending base offset; the last one is the active one. Never changes: writers make a new one."""

    __slots__ = ("_base_offsets", "all")

    def __init__(self, segments: tuple[LogSegment, ...]) -> None:
        self.all = segments
        self._base_offsets = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.all)

    def floor(self, offset: int) -> int:
        """Index of the segment that would hold `offset`: the last one with a base offset <= it; -1 for none."""
        return bisect_right(self._base_offsets, offset) - 1

    def from_offset(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segments that hold offsets >= `offset`: from the floor segment on, or all."""
        return self.all[max(self.floor(offset), 0) :]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all)

    def added(self, segment: LogSegment) -> SegmentTable:
        return SegmentTable((*self.all, segment))

    def without_first(self, count: int) -> SegmentTable:
        return SegmentTable(self.all[count:])
