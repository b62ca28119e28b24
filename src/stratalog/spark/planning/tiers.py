"""Choose the segment that serves each offset of a partition, where both tiers have segments. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from stratalog.inspect import PlaceTier
from stratalog.spark.model import Segment, SegmentRange

_TIER_RANK: Final = {PlaceTier.BROKER: 0, PlaceTier.REMOTE: 1, PlaceTier.LOCAL: 2}


def merge_tiers(segments: Iterable[Segment], replicas: Iterable[SegmentRange] = ()) -> list[SegmentRange]:
    """Return ascending, disjoint ranges that cover every offset of any segment, and of `replicas`, once.

    An offset is served by a local segment, else by the remote one with the highest leader epoch (of those, the one that
    reaches furthest), else by the broker. `replicas` are parts of local segments, chosen among those of several
    brokers.
    """
    whole = (SegmentRange(each, each.base_offset, each.end_offset) for each in segments)
    by_start = sorted((each for each in (*replicas, *whole) if each.end > each.start), key=lambda each: each.start)
    ranges: list[SegmentRange] = []
    open_: list[SegmentRange] = []  # those that begin at or before the cursor and reach beyond it
    upcoming = 0
    cursor = by_start[0].start if by_start else 0
    while True:
        while upcoming < len(by_start) and by_start[upcoming].start <= cursor:
            open_.append(by_start[upcoming])
            upcoming += 1
        open_ = [each for each in open_ if each.end > cursor]
        if not open_:
            if upcoming == len(by_start):
                return ranges
            cursor = by_start[upcoming].start
            continue
        best = max(open_, key=_rank)
        end = best.end
        for other in by_start[upcoming:]:
            if other.start >= end:
                break
            if _rank(other) > _rank(best):
                end = other.start
                break
        if ranges and ranges[-1].segment is best.segment and ranges[-1].end == cursor:
            ranges[-1] = SegmentRange(best.segment, ranges[-1].start, end)
        else:
            ranges.append(SegmentRange(best.segment, cursor, end))
        cursor = end


def _rank(each: SegmentRange) -> tuple[int, int, int]:
    return _TIER_RANK[each.segment.tier], each.segment.epoch, each.end


def holes(
    ranges: Sequence[SegmentRange], start: int, end: int, explains: Callable[[Segment, Segment], bool]
) -> list[tuple[int, int]]:
    """Return the offsets of [start, end) that are in no range, unless the segments around them explain it."""
    found = []
    for before, after in pairwise(ranges):
        low, high = max(before.end, start), min(after.start, end)
        if low < high and not explains(before.segment, after.segment):
            found.append((low, high))
    return found
