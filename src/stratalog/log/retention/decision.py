"""Plan which segments to delete.

Three rules are applied in turn, each from the oldest segment up to the first one that it keeps. Source: Kafka's
`UnifiedLog.deleteOldSegments` and `deletableSegments`.

    log start offset   every offset of the segment is below the log start offset
    size               the log is still at least `retention_bytes` large without the segment
    time               now - largest timestamp > retention_ms, strictly

No rule deletes a segment with an offset at or above the high watermark, an empty active segment, or, on a tiered
partition, a segment that is not yet copied to the remote tier.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stratalog.config import LogConfig


class RetentionSegment(Protocol):
    """A segment as retention sees it. Its timestamp is read last, because that may read the time index."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp(self) -> int:
        """Return the largest record timestamp, or the file's modification time when no record has one."""


class DeletionReason(enum.Enum):
    LOG_START_OFFSET = "below the log start offset"
    SIZE = "retention size"
    TIME = "retention time"


class DeletedSegment(NamedTuple):
    base_offset: int
    size_bytes: int
    reason: DeletionReason


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The bounds in effect: for a tiered partition the local ones. -1 is no bound."""

    retention_ms: int
    retention_bytes: int
    #: Everything below is deleted: the local log start offset of a tiered partition, else the log start offset.
    start_offset: int
    high_watermark: int
    log_end_offset: int
    #: Segments must end at or below this offset unless the whole log starts later. None: not a tiered partition.
    remote_through: int | None = None
    #: The log start offset over all tiers.
    log_start_offset: int = 0
    #: Roll an active segment that is due, so that it can be copied and deleted later.
    roll_active: bool = False

    @classmethod
    def of(
        cls,
        config: LogConfig,
        *,
        log_start_offset: int,
        local_log_start_offset: int,
        high_watermark: int,
        log_end_offset: int,
        highest_offset_in_remote_storage: int,
    ) -> RetentionLimits:
        """Return the limits of a topic's configuration for a log with these offsets."""
        tiered = is_tiered(config)
        by_policy = "delete" in config.cleanup_policy or (tiered and not config.compacted)
        retention_ms = config.effective_local_retention_ms if tiered else config.retention_ms
        retention_bytes = config.effective_local_retention_bytes if tiered else config.retention_bytes
        return cls(
            retention_ms=retention_ms if by_policy else -1,
            retention_bytes=retention_bytes if by_policy else -1,
            start_offset=local_log_start_offset if config.remote_storage_enable else log_start_offset,
            high_watermark=high_watermark,
            log_end_offset=log_end_offset,
            remote_through=highest_offset_in_remote_storage if tiered else None,
            log_start_offset=log_start_offset,
            roll_active=tiered,
        )


def is_tiered(config: LogConfig) -> bool:
    """Return whether sealed segments are copied to the remote tier before local deletion."""
    return config.remote_storage_enable and not config.remote_log_copy_disable


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The leading segments to delete, each with its rule, and whether to roll the active one first."""

    deletions: tuple[DeletionReason, ...]
    roll_active: bool


def plan_retention(segments: Sequence[RetentionSegment], limits: RetentionLimits, now_ms: int) -> RetentionPlan:
    """Decide about `segments`, all of a log in order with the active one last.

    `deletions[i]` is the reason for `segments[i]`. If the active segment is deleted, an empty one replaces it.
    """
    reasons: list[DeletionReason] = []
    roll_active = False
    for reason in DeletionReason:
        taken, wants_roll = _apply(reason, segments, len(reasons), limits, now_ms)
        reasons.extend([reason] * taken)
        roll_active = roll_active or wants_roll
    return RetentionPlan(tuple(reasons), roll_active)


def _apply(
    reason: DeletionReason, segments: Sequence[RetentionSegment], first: int, limits: RetentionLimits, now_ms: int
) -> tuple[int, bool]:
    """Return how many segments from `first` on one rule deletes, and whether the active one has to be rolled."""
    breaches = _breaches(reason, segments, first, limits, now_ms)
    taken = 0
    for i in range(first, len(segments)):
        is_active = i + 1 == len(segments)
        end_offset = limits.log_end_offset if is_active else segments[i + 1].base_offset
        if limits.high_watermark < end_offset or not next(breaches):
            return taken, False
        if is_active and segments[i].size_bytes == 0:
            return taken, False
        if not _is_expendable(end_offset, is_active, limits):
            return taken, is_active and limits.roll_active
        if is_active and limits.roll_active:
            return taken, True
        taken += 1
    return taken, False


def _is_expendable(end_offset: int, is_active: bool, limits: RetentionLimits) -> bool:
    """Return whether the segment that ends before `end_offset` is in the remote tier or no longer needed."""
    if limits.remote_through is None:
        return True
    if not is_active and limits.log_start_offset >= end_offset:
        return True
    return end_offset > 0 and end_offset - 1 <= limits.remote_through


def _breaches(
    reason: DeletionReason, segments: Sequence[RetentionSegment], first: int, limits: RetentionLimits, now_ms: int
) -> Iterator[bool]:
    """Yield whether each segment from `first` on breaches the rule."""
    if reason is DeletionReason.LOG_START_OFFSET:
        for i in range(first, len(segments)):
            yield i + 1 < len(segments) and segments[i + 1].base_offset <= limits.start_offset
    elif reason is DeletionReason.SIZE:
        excess = sum(segment.size_bytes for segment in segments[first:]) - limits.retention_bytes
        for segment in segments[first:]:
            excess -= segment.size_bytes
            yield limits.retention_bytes >= 0 and excess >= 0
    else:
        for segment in segments[first:]:
            yield limits.retention_ms >= 0 and now_ms - segment.largest_timestamp() > limits.retention_ms
