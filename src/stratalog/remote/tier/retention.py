"""Plan which remote segments to delete (Kafka's RLMExpirationTask and RemoteLogRetentionHandler).

Times are inclusive here (largest timestamp <= now - retention.ms); those of the local log are strict. Sizes count
finished segments of the lineage, each offset once, plus what is only local. Failed copies do not count.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratalog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState, is_within_lineage


class ExpirationReason(enum.Enum):
    """Why a remote segment is deleted."""

    DELETE_STARTED = "its deletion was begun before"
    FAILED_COPY = "its copy failed"
    LOG_START_OFFSET = "it ends below the log start offset"
    UNREFERENCED = "its leader epochs are older than any that the leader knows"
    TIME = "retention time"
    SIZE = "retention size"


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """The facts at one moment. Retention of -1 is unbounded; `lineage` has no epochs without records."""

    retention_ms: int
    retention_bytes: int
    now_ms: int
    log_start_offset: int
    log_end_offset: int
    only_local_bytes: int
    lineage: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Expiration:
    segment: RemoteLogSegmentMetadata
    reason: ExpirationReason


@dataclass(frozen=True, slots=True)
class ExpirationPlan:
    """What to delete, and the log start offset that must be set first."""

    log_start_offset: int
    expirations: tuple[Expiration, ...]

    @property
    def size_bytes(self) -> int:
        return sum(expiration.segment.segment_size_bytes for expiration in self.expirations)


def plan_expiration(segments: Sequence[RemoteLogSegmentMetadata], facts: RetentionFacts) -> ExpirationPlan:
    """Decide about all segments of a partition in any state.

    Except for those being copied.
    """
    by_retention = _breaches(segments, facts)
    log_start = max([facts.log_start_offset, *(e.segment.end_offset + 1 for e in by_retention)])
    planned = {expiration.segment.segment_id: expiration for expiration in by_retention}
    for segment in segments:
        reason = _plain_reason(segment, log_start, facts)
        if reason is not None:
            planned.setdefault(segment.segment_id, Expiration(segment, reason))
    ordered = sorted(planned.values(), key=lambda e: (e.segment.start_offset, e.segment.end_offset))
    return ExpirationPlan(log_start, tuple(ordered))


@dataclass(frozen=True, slots=True)
class Quiet:
    """Until when an empty plan stays empty, if segments and other facts do not change.

    None is unbounded. Both bounds are the first values at which something is deleted.
    """

    now_ms: int | None
    only_local_bytes: int | None

    def holds(self, now_ms: int, only_local_bytes: int) -> bool:
        return (self.now_ms is None or now_ms < self.now_ms) and (
            self.only_local_bytes is None or only_local_bytes < self.only_local_bytes
        )


def quiet_until(segments: Sequence[RemoteLogSegmentMetadata], facts: RetentionFacts) -> Quiet:
    """Return how long nothing is deleted, for segments of which `plan_expiration` takes none."""
    counted = readable_sizes(segments, facts)
    if not counted:
        return Quiet(None, None)
    oldest, size = counted[0]
    remote = sum(bytes_ for _, bytes_ in counted)
    return Quiet(
        oldest.max_timestamp_ms + facts.retention_ms if facts.retention_ms >= 0 else None,
        facts.retention_bytes + max(size, 1) - remote if facts.retention_bytes >= 0 else None,
    )


def _plain_reason(
    segment: RemoteLogSegmentMetadata, log_start_offset: int, facts: RetentionFacts
) -> ExpirationReason | None:
    """Return a reason that depends on no other segment."""
    if segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
        return ExpirationReason.DELETE_STARTED
    if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        return ExpirationReason.FAILED_COPY
    if segment.end_offset < log_start_offset:
        return ExpirationReason.LOG_START_OFFSET
    if facts.lineage and segment.last_epoch < min(facts.lineage):
        return ExpirationReason.UNREFERENCED
    return None


def readable_sizes(
    segments: Sequence[RemoteLogSegmentMetadata], facts: RetentionFacts
) -> list[tuple[RemoteLogSegmentMetadata, int]]:
    """Return `counted_sizes` of readable segments, to which retention by time and size applies."""
    return counted_sizes(
        [
            segment
            for segment in segments
            if segment.is_readable
            and segment.end_offset >= facts.log_start_offset
            and is_within_lineage(segment, facts.log_end_offset, facts.lineage)
        ]
    )


def _breaches(segments: Sequence[RemoteLogSegmentMetadata], facts: RetentionFacts) -> list[Expiration]:
    """Return segments past the retention time or size, from the oldest up to the first that stays."""
    counted = readable_sizes(segments, facts)
    excess = sum(size for _, size in counted) + facts.only_local_bytes - facts.retention_bytes
    found = []
    for segment, size in counted:
        if facts.retention_ms >= 0 and segment.max_timestamp_ms <= facts.now_ms - facts.retention_ms:
            found.append(Expiration(segment, ExpirationReason.TIME))
        elif facts.retention_bytes >= 0 and excess >= max(size, 1):
            found.append(Expiration(segment, ExpirationReason.SIZE))
        else:
            break
        excess -= size
    return found


def counted_sizes(segments: Sequence[RemoteLogSegmentMetadata]) -> list[tuple[RemoteLogSegmentMetadata, int]]:
    """Return segments by offset, each with the bytes of those offsets that no other one counts.

    Leaves out a segment that another one covers: it is deleted when the other one's end is below the log start offset.
    Where two overlap in part, the later one counts for its own part, in proportion to its offsets.
    """
    counted: list[tuple[RemoteLogSegmentMetadata, int]] = []
    end = -1
    for segment in sorted(segments, key=lambda s: (s.start_offset, -s.end_offset, s.event_timestamp_ms)):
        if segment.end_offset <= end:
            continue
        offsets = segment.end_offset - segment.start_offset + 1
        own = segment.end_offset - max(end, segment.start_offset - 1)
        counted.append((segment, segment.segment_size_bytes * own // offsets))
        end = segment.end_offset
    return counted
