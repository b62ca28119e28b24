"""Which neighbouring segments become one."""

from __future__ import annotations

from stratalog.log.cleaner.grouping import SegmentSizes, group_by_size

NO_LIMIT = 1 << 62
GIB = 1 << 30


def groups(
    segments: list[SegmentSizes],
    *,
    size_max: int = NO_LIMIT,
    index_size_max: int = NO_LIMIT,
    first_uncleanable_offset: int = 1_000,
) -> list[list[int]]:
    found = group_by_size(
        segments,
        size_max=size_max,
        index_size_max=index_size_max,
        first_uncleanable_offset=first_uncleanable_offset,
    )
    return [list(group) for group in found]


def row(*sizes: int, index: int = 8, time_index: int = 12) -> list[SegmentSizes]:
    return [SegmentSizes(10 * n, size, index, time_index) for n, size in enumerate(sizes)]


def test_no_segments_make_no_groups() -> None:
    assert groups([]) == []


def test_everything_that_fits_is_one_group() -> None:
    assert groups(row(100, 100, 100)) == [[0, 1, 2]]


def test_a_limit_that_nothing_fits_leaves_each_alone() -> None:
    assert groups(row(100, 100, 100), size_max=1) == [[0], [1], [2]]
    assert groups(row(100, 100, 100), index_size_max=1) == [[0], [1], [2]]


def test_groups_are_as_large_as_the_log_may_be() -> None:
    assert groups(row(100, 100, 100, 100, 100), size_max=200) == [[0, 1], [2, 3], [4]]


def test_groups_are_as_large_as_each_index_may_be() -> None:
    assert groups(row(1, 1, 1, index=100, time_index=0), index_size_max=200) == [[0, 1], [2]]
    assert groups(row(1, 1, 1, index=0, time_index=100), index_size_max=200) == [[0, 1], [2]]


def test_segments_past_two_gib_are_counted_as_they_are() -> None:
    assert groups(row(3 * GIB, 3 * GIB, 5 * GIB), size_max=6 * GIB) == [[0, 1], [2]]


def test_offsets_of_a_group_fit_an_index_entry() -> None:
    """The last offset of a segment is at most one less than the base offset of the next."""
    far = 2**31
    segments = [SegmentSizes(0, 1, 0, 0), SegmentSizes(far - 1, 1, 0, 0), SegmentSizes(far, 1, 0, 0)]
    assert groups(segments, first_uncleanable_offset=far + 10) == [[0, 1], [2]]
    assert groups(segments, first_uncleanable_offset=far) == [[0, 1, 2]]


def test_the_last_segment_ends_before_what_cannot_be_cleaned() -> None:
    segments = [SegmentSizes(0, 1, 0, 0), SegmentSizes(10, 1, 0, 0)]
    assert groups(segments, first_uncleanable_offset=2**31) == [[0, 1]]
    assert groups(segments, first_uncleanable_offset=2**31 + 1) == [[0], [1]]


def test_an_empty_segment_brings_no_offsets() -> None:
    far = 2**31
    segments = [SegmentSizes(0, 1, 0, 0), SegmentSizes(far + 5, 0, 0, 0), SegmentSizes(2 * far, 1, 0, 0)]
    assert groups(segments, first_uncleanable_offset=2 * far + 9) == [[0, 1], [2]]
