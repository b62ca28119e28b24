"""Compute the cleanable range of a log and its dirty ratio: facts in, offsets and sizes out.

    log start        first dirty        first uncleanable      active
       |--- clean ------|--- cleanable ------|--- too new ---------|---

The first dirty offset is where the last cleaning ended. Records at or after the last stable offset are not cleaned, nor
the active segment, nor a segment with a record younger than `min.compaction.lag.ms`. Source: Kafka's
`LogCleanerManager.cleanableOffsets`, `maxCompactionDelay` and `calculateCleanableBytes`, and `LogToClean`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stratalog.config import LogConfig
from stratalog.log.partition_log import PartitionLog


class CleanableSegment(Protocol):
    """The facts needed of a segment. Its timestamps may be read from a file, so they are requested last."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def first_batch_timestamp(self) -> int | None:
        """The max timestamp of the first batch, negative if it has none; None without a batch."""

    def largest_timestamp(self) -> int:
        """Return the largest record timestamp, or the file's modification time when no record has one."""


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """A log as it is now. `segments` are in order and end with the active one."""

    segments: Sequence[CleanableSegment]
    log_start_offset: int
    log_end_offset: int
    #: Not above the high watermark.
    last_stable_offset: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    #: Retention moves the log start offset past the clean part as a matter of course.
    deletes_by_retention: bool

    @classmethod
    def of(cls, log: PartitionLog) -> CleanableLog:
        config: LogConfig = log.config
        return cls(
            segments=log.segments,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            last_stable_offset=log.last_stable_offset,
            min_compaction_lag_ms=max(config.min_compaction_lag_ms, 0),
            max_compaction_lag_ms=max(config.max_compaction_lag_ms, 0),
            deletes_by_retention="delete" in config.cleanup_policy,
        )

    def sealed_from(self, offset: int) -> Sequence[CleanableSegment]:
        """Return the segments from the one that holds `offset` on, without the active one."""
        return self.segments[_floor(self.segments, offset) : -1]


def _floor(segments: Sequence[CleanableSegment], offset: int) -> int:
    """Return the index of the segment that would hold `offset`, or 0 if all begin after it."""
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


class FirstDirty(NamedTuple):
    """The start of the dirty part. `why_reset` says why the checkpoint is wrong and must be rewritten."""

    offset: int
    why_reset: str | None
    #: Whether the reset is worth a warning.
    is_unexpected: bool = False


def first_dirty_offset(facts: CleanableLog, checkpointed: int | None) -> FirstDirty:
    """Return the checkpointed end of the last cleaning if it is plausible, else the log start, to clean everything."""
    start = facts.log_start_offset
    if checkpointed is None:
        return FirstDirty(start, None)
    if checkpointed < start:
        why = f"offset {checkpointed} lies before the log start offset {start}"
        return FirstDirty(start, why, is_unexpected=not facts.deletes_by_retention)
    if checkpointed > facts.log_end_offset:
        why = f"offset {checkpointed} lies behind the log end offset {facts.log_end_offset}"
        return FirstDirty(start, why, is_unexpected=True)
    return FirstDirty(checkpointed, None)


def first_uncleanable_offset(facts: CleanableLog, first_dirty: int, now_ms: int) -> int:
    """Return where the cleanable part ends; not below `first_dirty`."""
    bounds = [facts.last_stable_offset, facts.segments[-1].base_offset]
    if facts.min_compaction_lag_ms > 0:
        newest_ms = now_ms - facts.min_compaction_lag_ms
        for segment in facts.sealed_from(first_dirty):
            if segment.largest_timestamp() > newest_ms:
                bounds.append(segment.base_offset)
                break
    return max(first_dirty, min(bounds))


def compaction_delay_ms(facts: CleanableLog, first_dirty: int, now_ms: int) -> int:
    """Return by how long the oldest dirty segment exceeds `max.compaction.lag.ms`, or 0 if it does not."""
    timestamps = (segment.first_batch_timestamp for segment in facts.sealed_from(first_dirty))
    due_ms = now_ms - facts.max_compaction_lag_ms
    delays = [due_ms - timestamp for timestamp in timestamps if timestamp is not None and timestamp > 0]
    return max([0, *delays])


class Dirtiness(NamedTuple):
    """Sizes in bytes of the two parts of a log that a cleaning reads."""

    clean_bytes: int
    cleanable_bytes: int
    #: Where the cleanable part ends, at a segment's beginning.
    first_uncleanable_offset: int

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def ratio(self) -> float:
        """The share of the cleanable part; `total_bytes` must not be 0."""
        return self.cleanable_bytes / self.total_bytes


def dirtiness(facts: CleanableLog, first_dirty: int, first_uncleanable: int) -> Dirtiness:
    """Return the sizes of both parts in whole segments.

    A segment that holds `first_dirty` counts in both parts, one that holds `first_uncleanable` in neither.
    """
    behind = [*facts.sealed_from(first_uncleanable), facts.segments[-1]][0].base_offset
    clean = _size(facts.segments, -1, first_dirty)
    return Dirtiness(clean, _size(facts.segments, min(first_dirty, behind), behind), behind)


def _size(segments: Sequence[CleanableSegment], start: int, end: int) -> int:
    """Return the size of the segments from the one with offset `start` on, as far as they begin below `end`."""
    if start >= end:
        return 0
    return sum(s.size_bytes for s in segments[_floor(segments, start) :] if s.base_offset < end)
