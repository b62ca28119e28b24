"""Make splits, each read by one Spark task, from ranges of offsets. Pure.

A segment is cut at entries of its offset index into pieces of about `split_bytes`. Each piece also has the bounds of
its offsets. Small consecutive pieces of a partition are joined, so that small segments do not make small tasks.
`maxRecordsPerPartition` cuts at offsets; the bytes around such a cut are read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np

from stratalog.inspect import Place, PlaceTier
from stratalog.log.index import AbortedTransaction
from stratalog.spark.model import Piece, Segment, SegmentRange, SplitPlan
from stratalog.spark.planning.indexes import OffsetEntries, TimeEntries


def needs_index(wanted: SegmentRange, split_bytes: int) -> bool:
    """Return whether the offset index can save reading bytes, or cut this range."""
    segment = wanted.segment
    if segment.tier is PlaceTier.BROKER:
        return False
    return segment.size > split_bytes or wanted.start > segment.base_offset or wanted.end < segment.end_offset


def cut_segment(
    wanted: SegmentRange, entries: OffsetEntries | None, split_bytes: int, copy: Place | None = None
) -> list[Piece]:
    """Cut one range into pieces of about `split_bytes`, if the index allows it, which cover exactly its offsets."""
    segment = wanted.segment
    whole = Piece(
        log=segment.log,
        start_position=0,
        end_position=segment.size,
        start=wanted.start,
        end=wanted.end,
        base_min=segment.base_offset,
        base_end=segment.end_offset,
        copy=copy,
    )
    if entries is None or len(entries) == 0:
        return [whole]
    offsets, positions = entries.offsets, entries.positions
    # Batches before an entry end before its offset: the last entry at or before the start can be the beginning, and the
    # batch of the first entry at or after the last offset is the last one needed.
    first = int(np.searchsorted(offsets, wanted.start, side="right")) - 1
    last = int(np.searchsorted(offsets, wanted.end - 1, side="left")) + 1
    start_position = int(positions[first]) if first >= 0 else 0
    end_position = int(positions[last]) if last < len(offsets) else segment.size
    cuts = [
        start_position,
        *_cut_positions(positions, start_position, end_position, split_bytes),
        end_position,
    ]
    slots = [first, *(int(np.searchsorted(positions, cut)) for cut in cuts[1:-1]), last]
    return [
        replace(
            whole,
            start_position=cuts[i],
            end_position=cuts[i + 1],
            base_min=int(offsets[slots[i] - 1]) + 1 if slots[i] >= 1 else segment.base_offset,
            base_end=int(offsets[slots[i + 1]]) if slots[i + 1] < len(offsets) else segment.end_offset,
        )
        for i in range(len(cuts) - 1)
    ]


def apart(pieces: Sequence[Piece], entries: OffsetEntries, segment: Segment) -> list[Piece]:
    """Give the pieces disjoint offsets where no batch header was read at a cut.

    The offsets up to that of the entry at a cut go to the piece before it, which reads one entry further. If the
    segment is replaced, every piece is found by its offsets.
    """
    offsets, positions = entries.offsets, entries.positions
    found = []
    start = pieces[0].start if pieces else 0
    for piece, following in pairwise([*pieces, None]):
        assert piece is not None
        end, end_position, base_end = piece.end, piece.end_position, piece.base_end
        if following is not None:
            slot = int(np.searchsorted(positions, following.start_position))
            end = min(end, int(offsets[slot]) + 1)
            is_last = slot + 1 >= len(offsets)
            end_position = segment.size if is_last else int(positions[slot + 1])
            base_end = segment.end_offset if is_last else int(offsets[slot + 1])
        if start < end:
            found.append(replace(piece, start=start, end=end, end_position=end_position, base_end=base_end))
        start = max(start, end)
    return found


def _cut_positions(positions: Any, start: int, end: int, split_bytes: int) -> list[int]:
    """Return entries in (start, end) that cut it into nearly equal parts of about `split_bytes` at most."""
    count = -(-(end - start) // split_bytes)
    if count <= 1:
        return []
    inner = positions[np.searchsorted(positions, start, "right") : np.searchsorted(positions, end, "left")]
    ideal = start + (end - start) * np.arange(1, count, dtype=np.float64) / count
    slots = np.searchsorted(inner, ideal)
    return [int(position) for position in np.unique(inner[slots[slots < len(inner)]])]


def limit_records(ranges: Iterable[SegmentRange], records_max: int | None) -> Iterator[SegmentRange]:
    """Yield the ranges cut into equal parts of at most `records_max` offsets."""
    for each in ranges:
        parts = 1 if records_max is None else -(-(each.end - each.start) // records_max)
        edges = [each.start + (each.end - each.start) * i // parts for i in range(parts + 1)]
        for start, end in pairwise(edges):
            yield replace(each, start=start, end=end)


def pack(  # noqa: PLR0917
    topic: str,
    partition: int,
    pieces: Iterable[Piece],
    split_bytes: int,
    records_max: int | None = None,
    aborted: Sequence[AbortedTransaction] = (),
    topic_id: UUID | None = None,
) -> list[SplitPlan]:
    """Join pieces, in order, while they stay within `split_bytes` and `records_max` offsets."""
    plans: list[SplitPlan] = []
    group: list[Piece] = []

    def close() -> None:
        if group:
            start, end = group[0].start, group[-1].end
            overlapping = (each for each in aborted if each.last_offset >= start and each.first_offset < end)
            plans.append(SplitPlan(topic, partition, tuple(group), tuple(overlapping), topic_id))
            group.clear()

    size = count = 0
    for piece in pieces:
        offsets = min(piece.end, piece.base_end) - max(piece.start, piece.base_min)
        if size + piece.size > split_bytes or (records_max is not None and count + offsets > records_max):
            close()
            size = count = 0
        group.append(piece)
        size += piece.size
        count += offsets
    close()
    return plans


def narrow_by_time(
    wanted: SegmentRange,
    entries: TimeEntries,
    low_ms: int,
    high_ms: int,
    disorder_ms: int | None,
    proves: Callable[[int, int], bool],
) -> SegmentRange | None:
    """Return the range without the offsets at both ends that the time index rules out, or None if none are left.

    Up to an entry's offset no record is newer than the entry. If the disorder is known, no later record is older than
    the entry by more than that. Only entries that `proves` confirms are used.
    """
    start, end = wanted.start, wanted.end
    before = int(np.searchsorted(entries.timestamps_ms, low_ms, side="left")) - 1
    if before >= 0 and proves(int(entries.timestamps_ms[before]), int(entries.offsets[before])):
        start = max(start, int(entries.offsets[before]) + 1)
    if disorder_ms is not None:
        after = int(np.searchsorted(entries.timestamps_ms, high_ms + disorder_ms, side="right"))
        if after < len(entries) and proves(int(entries.timestamps_ms[after]), int(entries.offsets[after])):
            end = min(end, int(entries.offsets[after]) + 1)
    return replace(wanted, start=start, end=end) if start < end else None


def within_time(
    ranges: Sequence[SegmentRange], low_ms: int, high_ms: int, disorder_ms: int | None
) -> list[SegmentRange]:
    """Return the ranges whose segments may hold a timestamp in [low_ms, high_ms]."""
    kept = []
    newest: int | None = None  # of the segments before, each of them known
    for each in ranges:
        newest_here = each.segment.max_timestamp_ms
        too_new = disorder_ms is not None and newest is not None and newest - disorder_ms > high_ms
        if not too_new and (newest_here is None or newest_here >= low_ms):
            kept.append(each)
        if newest_here is not None:
            newest = newest_here if newest is None else max(newest, newest_here)
    return kept
