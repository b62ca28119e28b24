"""Estimate the bytes between offsets for `maxBytesPerTrigger` from sizes and offset indexes, without reading records.

Positions in an offset index are exact to `index.interval.bytes`. So is a limit, and a batch gets at least one interval
to make progress. A segment without an index is one step. Data that only brokers have is estimated from a sample.
"""

from __future__ import annotations

import math

import numpy as np

from stratalog.inspect import PlaceTier
from stratalog.spark.model import SegmentRange
from stratalog.spark.planning import BrokerRanges, IndexAccess, PartitionSnapshot


class ByteLag:
    """Estimates from the indexes of a query."""

    def __init__(self, indexes: IndexAccess, brokers: BrokerRanges | None = None) -> None:
        self._indexes = indexes
        self._brokers = brokers

    def between(self, snapshot: PartitionSnapshot, start: int, end: int) -> int:
        """Return about how many bytes a task must read for the offsets [start, end)."""
        positions = [self._positions(snapshot, each) for each in snapshot.between(start, end)]
        return sum(high - low for low, high in positions)

    def end_within(self, snapshot: PartitionSnapshot, start: int, end: int, budget: int) -> int:
        """Return the offset up to which [start, end) has about `budget` bytes, at least one step after `start`."""
        taken_to = start
        for each in snapshot.between(start, end):
            low, high = self._positions(snapshot, each)
            if high - low > budget and each.segment.tier is PlaceTier.BROKER:
                offsets = (each.end - each.start) * budget // (high - low)
                return each.start + max(offsets, 1 if taken_to == start else 0)
            if high - low > budget:
                return self._end_in(each, low, high, budget, must_advance=taken_to == start)
            budget -= high - low
            taken_to = each.end
        return end

    def _end_in(self, wanted: SegmentRange, low: int, high: int, budget: int, *, must_advance: bool) -> int:
        entries = self._indexes.offset_entries(wanted.segment)
        # A read up to the offset of an entry ends at the position of the next.
        ends = np.append(entries.positions[1:], high) if len(entries) else np.empty(0, np.int64)
        usable = (entries.offsets >= wanted.start) & (entries.offsets + 1 < wanted.end)
        within = np.flatnonzero(usable & (ends - low <= budget))
        if len(within):
            return int(entries.offsets[within[-1]]) + 1
        if not must_advance:
            return wanted.start
        first = np.flatnonzero(usable)
        return int(entries.offsets[first[0]]) + 1 if len(first) else wanted.end

    def _positions(self, snapshot: PartitionSnapshot, wanted: SegmentRange) -> tuple[int, int]:
        """Return the positions at which a task begins and ends reading for this range."""
        segment = wanted.segment
        if segment.tier is PlaceTier.BROKER:
            if self._brokers is None:
                return 0, 0
            key = snapshot.topic, snapshot.partition
            return 0, math.ceil(self._brokers.bytes_per_offset(key, wanted) * (wanted.end - wanted.start))
        low, high = 0, segment.size
        if wanted.start > segment.base_offset or wanted.end < segment.end_offset:
            entries = self._indexes.offset_entries(segment)
            low = entries.position_before(wanted.start)
            behind = int(np.searchsorted(entries.offsets, wanted.end - 1, side="left")) + 1
            high = int(entries.positions[behind]) if behind < len(entries) else segment.size
        return low, high
