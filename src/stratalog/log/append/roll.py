"""Decide when to roll the active segment: facts in, a decision out.

Source: Kafka's `LogSegment.shouldRoll` and `timeWaitedForRoll`. All sizes in bytes, all times in milliseconds.
"""

from __future__ import annotations

import enum
from typing import Final

from stratalog.config import LogConfig

RELATIVE_OFFSET_MAX: Final = 0x7FFF_FFFF
"""Indexes hold offsets relative to the segment's base offset as signed 32-bit numbers, whatever the segment's size."""


class RollReason(enum.Enum):
    """The reason to roll a segment before the next append."""

    SIZE = "segment.bytes reached"
    AGE = "segment.ms passed"
    INDEX_FULL = "an index is full"
    OFFSET_OVERFLOW = "the relative offset would pass 2^31-1"


def segment_ms_max(config: LogConfig) -> int:
    """Return the age at which a segment rolls: for a compacted topic also bounded by its max compaction lag."""
    if config.compacted and config.max_compaction_lag_ms > 0:
        return min(config.max_compaction_lag_ms, config.segment_ms)
    return config.segment_ms


def time_waited(*, now_ms: int, first_batch_timestamp: int | None, created_ms: int, incoming_max_timestamp: int) -> int:
    """Return how old the segment is for the purpose of rolling.

    In record time where the first batch has a timestamp (None or negative: it has none), else since the segment was
    created by this process.
    """
    if first_batch_timestamp is not None and first_batch_timestamp >= 0:
        return incoming_max_timestamp - first_batch_timestamp
    return now_ms - created_ms


def roll_reason(
    *,
    size: int,
    incoming_size: int,
    segment_bytes_max: int,
    waited_ms: int,
    segment_ms_max: int,
    indexes_full: bool,
    base_offset: int,
    incoming_last_offset: int,
) -> RollReason | None:
    """Return whether a segment of `size` bytes must be rolled before `incoming_size` bytes are appended to it.

    `segment_ms_max` has the segment's jitter already taken off. An empty segment is rolled only for its indexes or for
    offsets that it cannot hold: anything else would leave an empty segment behind.
    """
    if size > segment_bytes_max - incoming_size:
        return RollReason.SIZE
    if size > 0 and waited_ms > segment_ms_max:
        return RollReason.AGE
    if indexes_full:
        return RollReason.INDEX_FULL
    if not 0 <= incoming_last_offset - base_offset <= RELATIVE_OFFSET_MAX:
        return RollReason.OFFSET_OVERFLOW
    return None
