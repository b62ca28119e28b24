"""Group adjacent segments that become one. Pure. Source: Kafka's `Cleaner.groupSegmentsBySize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stratalog.log.append import RELATIVE_OFFSET_MAX


class SegmentSizes(NamedTuple):
    """The facts of a segment for grouping. Sizes are bytes, of any magnitude."""

    base_offset: int
    size: int
    offset_index_size: int
    time_index_size: int


def group_by_size(
    segments: Sequence[SegmentSizes],
    *,
    size_max: int,
    index_size_max: int,
    first_uncleanable_offset: int,
) -> list[range]:
    """Return the runs of segments, by index, that become one segment each.

    Before the cleaning, a group has at most `size_max` bytes of log and `index_size_max` bytes of each index. A larger
    segment is a group of its own. The span of offsets of a group fits in an index entry. A segment ends where the next
    one begins, or at `first_uncleanable_offset`; an empty one adds no offsets.
    """
    groups: list[range] = []
    start = 0
    while start < len(segments):
        first = segments[start]
        size, offset_size, time_size = first.size, first.offset_index_size, first.time_index_size
        end = start + 1
        while end < len(segments):
            following = segments[end]
            size += following.size
            offset_size += following.offset_index_size
            time_size += following.time_index_size
            if size > size_max or offset_size > index_size_max or time_size > index_size_max:
                break
            if following.size:
                behind = segments[end + 1].base_offset if end + 1 < len(segments) else first_uncleanable_offset
                if behind - 1 - first.base_offset > RELATIVE_OFFSET_MAX:
                    break
            end += 1
        groups.append(range(start, end))
        start = end
    return groups
