"""The same forecast for the remote tier: which segments are deleted, when at the earliest, and why not before. Pure.

It predicts what `retention.plan_expiration` decides at every later time if nothing is copied or appended. Unlike in the
local log, the time is inclusive: a segment expires when its newest record is exactly retention.ms old. Sizes count each
offset once, including offsets that are only local.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from stratalog.config import LogConfig
from stratalog.jobs.retention.fate import Due, Fate, Hold, Rhythm, Tier
from stratalog.jobs.retention.words import span_text, time_text
from stratalog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState
from stratalog.remote.tier import ExpirationReason, RetentionFacts, plan_expiration, readable_sizes

#: How often a broker checks each remote partition (`remote.log.manager.task.interval.ms` by default).
TASK_INTERVAL_MS = 30_000


@dataclass(frozen=True, slots=True)
class _Stay:
    """How long retention keeps a segment, None for ever, and which segment up to it is deleted last."""

    rule: ExpirationReason
    rule_ms: int | None
    keeper: RemoteLogSegmentMetadata


def forecast_remote(
    segments: Sequence[RemoteLogSegmentMetadata],
    facts: RetentionFacts,
    config: LogConfig,
) -> list[Fate]:
    """Return the fate of each remote segment of a partition that is not deleted, by offset."""
    now = {planned.segment.segment_id: planned.reason for planned in plan_expiration(segments, facts).expirations}
    stays = _stays(segments, facts)
    rhythm = Rhythm(TASK_INTERVAL_MS, 0)
    fates = []
    for segment in sorted(segments, key=lambda s: (s.start_offset, s.end_offset, s.event_timestamp_ms)):
        reason = now.get(segment.segment_id)
        stay = stays.get(segment.segment_id.id)
        if reason is not None:
            due: Due | None = rhythm.due(facts.now_ms, facts.now_ms)
            fates.append(_fate(segment, reason.value, due, (), _text_now(reason, segment, facts)))
        elif stay is None:
            fates.append(_not_read(segment, segments, facts))
        else:
            fates.append(_staying(segment, stay, facts, config, rhythm))
    return fates


def _stays(segments: Sequence[RemoteLogSegmentMetadata], facts: RetentionFacts) -> dict[UUID, _Stay]:
    """Return how long each stays: until it is due and all older ones are deleted."""
    counted = readable_sizes(segments, facts)
    excess = sum(size for _, size in counted) + facts.only_local_bytes - facts.retention_bytes
    found: dict[UUID, _Stay] = {}
    reached: int | None = facts.now_ms
    keeper: RemoteLogSegmentMetadata | None = None
    for segment, size in counted:
        over_size = facts.retention_bytes >= 0 and excess >= max(size, 1)
        own = facts.now_ms if over_size else None
        if not over_size and facts.retention_ms >= 0:
            own = segment.max_timestamp_ms + facts.retention_ms
        if keeper is None or own is None or (reached is not None and own > reached):
            keeper = segment if reached is not None or keeper is None else keeper
            reached = None if own is None or reached is None else max(own, reached)
        reason = ExpirationReason.SIZE if over_size else ExpirationReason.TIME
        found[segment.segment_id.id] = _Stay(reason, reached, keeper)
        excess -= size
    return found


def _staying(
    segment: RemoteLogSegmentMetadata, stay: _Stay, facts: RetentionFacts, config: LogConfig, rhythm: Rhythm
) -> Fate:
    if stay.keeper.segment_id != segment.segment_id:
        text = (
            "retention deletes from the oldest segment on and stops at the first that must stay: segment "
            f"{stay.keeper.start_offset}, whose newest record is dated {time_text(stay.keeper.max_timestamp_ms)}"
        )
        holds: tuple[Hold, ...] = (Hold.EARLIER_SEGMENT,)
    elif stay.rule_ms is None:
        holds, text = _unlimited(facts, config)
    else:
        holds, text = _young(segment, facts)
    due = None if stay.rule_ms is None else rhythm.due(stay.rule_ms, facts.now_ms)
    return _fate(segment, None if due is None else stay.rule.value, due, holds, text)


def _unlimited(facts: RetentionFacts, config: LogConfig) -> tuple[tuple[Hold, ...], str]:
    if "delete" not in config.cleanup_policy:
        return (Hold.NO_DELETE_POLICY,), "cleanup.policy does not include delete: remote segments stay"
    if facts.retention_bytes >= 0:
        text = f"retention.ms is -1, and without it there would be less than retention.bytes={facts.retention_bytes}"
        return (Hold.SIZE_BUDGET,), text
    return (Hold.UNLIMITED,), "retention.ms and retention.bytes are -1: no segment expires by age or size"


def _young(segment: RemoteLogSegmentMetadata, facts: RetentionFacts) -> tuple[tuple[Hold, ...], str]:
    newest = time_text(segment.max_timestamp_ms)
    limit = f"retention.ms={facts.retention_ms} ({span_text(facts.retention_ms)})"
    if segment.max_timestamp_ms > facts.now_ms:
        ahead = span_text(segment.max_timestamp_ms - facts.now_ms)
        text = (
            f"a record dated {newest}, {ahead} in the future, keeps this segment and all later ones until that time is "
            f"as old as {limit}"
        )
        return (Hold.FUTURE_TIMESTAMP,), text
    text = f"a segment is deleted as a whole, {limit} after its newest record, dated {newest}"
    return (Hold.NEWEST_TIMESTAMP,), text


def _not_read(
    segment: RemoteLogSegmentMetadata, all_segments: Sequence[RemoteLogSegmentMetadata], facts: RetentionFacts
) -> Fate:
    """Return the fate of a segment that no reader uses: being copied, covered by another, or of another lineage."""
    if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        return _fate(
            segment,
            None,
            None,
            (Hold.COPYING,),
            "its copy is in progress; the next task removes it if the copy failed",
        )
    covering = [
        other
        for other, _ in readable_sizes(all_segments, facts)
        if other.start_offset <= segment.start_offset and segment.end_offset <= other.end_offset
    ]
    if covering:
        text = (
            f"segment {covering[0].start_offset}-{covering[0].end_offset} has the same offsets, and is read instead; "
            "this one is deleted when the log start offset passes its end"
        )
        return _fate(segment, None, None, (Hold.COVERED,), text)
    text = (
        "its leader epochs are not in this log: it belongs to a discarded history and is not read; it is deleted when "
        "the log start offset passes its end"
    )
    return _fate(segment, None, None, (Hold.OTHER_LINEAGE,), text)


def _text_now(reason: ExpirationReason, segment: RemoteLogSegmentMetadata, facts: RetentionFacts) -> str:
    if reason is ExpirationReason.TIME:
        return (
            f"its newest record is {span_text(facts.now_ms - segment.max_timestamp_ms)} old, and retention.ms is "
            f"{facts.retention_ms} ({span_text(facts.retention_ms)})"
        )
    if reason is ExpirationReason.SIZE:
        return f"without this segment both tiers still have at least retention.bytes={facts.retention_bytes}"
    return str(reason.value)


def _fate(
    segment: RemoteLogSegmentMetadata, rule: str | None, due: Due | None, holds: tuple[Hold, ...], text: str
) -> Fate:
    return Fate(
        tier=Tier.REMOTE,
        base_offset=segment.start_offset,
        end_offset=segment.end_offset,
        size_bytes=segment.segment_size_bytes,
        largest_timestamp_ms=segment.max_timestamp_ms,
        rule=rule,
        due=due,
        holds=holds,
        text=text,
    )
