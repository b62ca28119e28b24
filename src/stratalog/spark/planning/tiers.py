"""Which segment serves which offsets of a partition, where both tiers have segments. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from stratalog.inspect import PlaceTier
from stratalog.spark.model import Segment, SegmentRange

_TIER_RANK: Final = {PlaceTier.BROKER: 0, PlaceTier.REMOTE: 1, PlaceTier.LOCAL: 2}


def merge_tiers(segments: Iterable[Segment]) -> list[SegmentRange]:
    """Return ascending, disjoint ranges that cover every offset that any segment has, once.

    An offset is served by a local segment, else by the remote one of the highest leader epoch (of those, the one that
    reaches furthest), else by the broker.
    """
    by_base = sorted((s for s in segments if s.end_offset > s.base_offset), key=lambda s: s.base_offset)
    ranges: list[SegmentRange] = []
    open_: list[Segment] = []  # segments that begin at or before the cursor and reach beyond it
    upcoming = 0
    cursor = by_base[0].base_offset if by_base else 0
    while True:
        while upcoming < len(by_base) and by_base[upcoming].base_offset <= cursor:
            open_.append(by_base[upcoming])
            upcoming += 1
        open_ = [s for s in open_ if s.end_offset > cursor]
        if not open_:
            if upcoming == len(by_base):
                return ranges
            cursor = by_base[upcoming].base_offset
            continue
        best = max(open_, key=_rank)
        end = best.end_offset
        for other in by_base[upcoming:]:
            if other.base_offset >= end:
                break
            if _rank(other) > _rank(best):
                end = other.base_offset
                break
        if ranges and ranges[-1].segment is best and ranges[-1].end == cursor:
            ranges[-1] = SegmentRange(best, ranges[-1].start, end)
        else:
            ranges.append(SegmentRange(best, cursor, end))
        cursor = end


def _rank(segment: Segment) -> tuple[int, int, int]:
    return _TIER_RANK[segment.tier], segment.epoch, segment.end_offset


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
