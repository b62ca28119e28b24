"""The segments of a log as one sequence: found by offset, counted, never changed under a reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from hypothesis import given, strategies as st

from stratalog.log.segment.segment import LogSegment
from stratalog.log.segment.segment_table import SegmentTable


@dataclass
class FakeSegment:
    base_offset: int
    size_bytes: int = 0


def segments_at(base_offsets: Sequence[int], size_bytes: int = 0) -> SegmentTable:
    return SegmentTable(tuple(cast(LogSegment, FakeSegment(base, size_bytes)) for base in base_offsets))


def bases(segments: Sequence[LogSegment]) -> list[int]:
    return [segment.base_offset for segment in segments]


def test_adding_and_dropping_gives_a_new_sequence_and_leaves_the_old_one() -> None:
    empty = segments_at([])
    assert (len(empty), list(empty), empty.size_bytes) == (0, [], 0)
    one = empty.added(cast(LogSegment, FakeSegment(3)))
    two = one.added(cast(LogSegment, FakeSegment(7)))
    assert (bases(empty.all), bases(one.all), bases(two.all)) == ([], [3], [3, 7])
    assert bases(two.without_first(1).all) == [7]
    assert bases(two.all) == [3, 7]


@given(
    base_offsets=st.lists(st.integers(0, 100), unique=True, max_size=12).map(sorted),
    offset=st.integers(0, 110),
)
def test_the_segments_for_an_offset_are_those_that_a_list_would_give(base_offsets: list[int], offset: int) -> None:
    """floor: the last with a base offset at or below; from_offset: from that one on, or all of them."""
    segments = segments_at(base_offsets)
    at_or_below = [base for base in base_offsets if base <= offset]
    floor = segments.floor(offset)
    assert floor == len(at_or_below) - 1
    behind = [base for base in base_offsets if base > offset]
    assert bases(segments.from_offset(offset)) == at_or_below[-1:] + behind
    assert bases(segments.all[floor + 1 :]) == behind


def test_sizes_add_up_past_2_gib() -> None:
    assert segments_at([0, 5, 9], 2**31 - 1).size_bytes == 3 * (2**31 - 1)
