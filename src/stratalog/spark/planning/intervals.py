"""Sets of integers as disjoint intervals, for pushed filters on offsets, partitions and timestamps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of int64 values: closed intervals [low, high], ascending, disjoint and not adjacent."""

    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int]]) -> Intervals:
        """Return the union of closed intervals in any order. Empty ones (high < low) are ignored."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(spans):
            low, high = max(low, INT64_MIN), min(high, INT64_MAX)
            if low > high:
                continue
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    @classmethod
    def between(cls, low: int, high: int) -> Intervals:
        """Return all of [low, high]."""
        return cls.of([(low, high)])

    def __contains__(self, value: int) -> bool:
        return any(low <= value <= high for low, high in self.spans)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.spans)

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __and__(self, other: Intervals) -> Intervals:
        return Intervals.of(
            (max(a, c), min(b, d)) for a, b in self.spans for c, d in other.spans if max(a, c) <= min(b, d)
        )

    def __invert__(self) -> Intervals:
        edges = [INT64_MIN - 1]
        for low, high in self.spans:
            edges += [low, high]
        edges.append(INT64_MAX + 1)
        return Intervals.of((edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2))

    @property
    def is_everything(self) -> bool:
        return self.spans == ((INT64_MIN, INT64_MAX),)

    @property
    def low(self) -> int:
        """The smallest value; of the empty set, the largest int64."""
        return self.spans[0][0] if self.spans else INT64_MAX

    @property
    def high(self) -> int:
        """The largest value; of the empty set, the smallest int64."""
        return self.spans[-1][1] if self.spans else INT64_MIN

    def hull(self) -> Intervals:
        """Return the one interval from the smallest to the largest value."""
        return Intervals.between(self.low, self.high)


EVERYTHING = Intervals(((INT64_MIN, INT64_MAX),))
NOTHING = Intervals(())
