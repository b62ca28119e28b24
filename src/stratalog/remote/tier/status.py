"""Explain why a partition's segments are still local, or not yet remote.

The reason of a partition is that of its oldest segment that is not remote: segments are copied in order, so the others
wait for it. All facts are from one moment. Nothing here reads a disk or a store, except for the timestamps of segments
held back by the copy lag.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from stratalog.config import LogConfig
from stratalog.log.retention import RetentionSegment
from stratalog.log.segment import LogSegment
from stratalog.remote.tier.copy_task import candidates
from stratalog.remote.tier.watchdog import Step, StepKind


class Reason(Enum):
    """The value is used in JSON, metrics and tables."""

    UP_TO_DATE = "up to date"
    ACTIVE_SEGMENT = "active segment"
    ABOVE_LSO = "above LSO"
    COPY_LAG = "copy lag"
    QUOTA = "quota"
    FAILING = "failing"
    COPYING = "copying"
    WAITING = "waiting"
    COPY_DISABLED = "copy disabled"
    DISABLED = "disabled"
    FOLLOWER = "follower"
    #: For a remote segment: local retention keeps the local one.
    LOCAL_RETENTION = "local retention"


#: A short explanation of each for users.
MEANING = {
    Reason.UP_TO_DATE: "everything is remote",
    Reason.ACTIVE_SEGMENT: "the segment is active; it is copied once it is rolled (segment.bytes, segment.ms)",
    Reason.ABOVE_LSO: "the segment ends above the last stable offset: a transaction in it is still open",
    Reason.COPY_LAG: "remote.copy.lag.ms and remote.copy.lag.bytes hold the segment back for now",
    Reason.QUOTA: "the copy waits for its share of remote.log.manager.copy.max.bytes.per.second",
    Reason.FAILING: "the copy fails, and is tried again",
    Reason.COPYING: "the segment is being copied",
    Reason.WAITING: "the segment is due, and waits for its turn",
    Reason.COPY_DISABLED: "remote.log.copy.disable is set: nothing more is copied",
    Reason.DISABLED: "the topic or the broker is not tiered",
    Reason.FOLLOWER: "the leader of the partition copies",
    Reason.LOCAL_RETENTION: "the segment is remote; local.retention.ms and .bytes keep the local copy",
}


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task whose last run failed: how many in a row, since when, and the last error."""

    task: str
    times: int
    since_ms: int
    error: str


@dataclass(frozen=True, slots=True)
class TierFacts:
    """One partition at `now_ms`. `segments` are the local ones in order, the active one last.

    `highest_remote_offset` is the last offset copied to the remote tier, or -1.
    """

    topic: str
    partition: int
    config: LogConfig
    segments: Sequence[RetentionSegment]
    log_start_offset: int
    local_log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    highest_remote_offset: int
    now_ms: int
    #: Whether the broker has a remote tier.
    is_available: bool = True
    is_leader: bool = True
    #: Copying stopped until an operator acts: custom metadata are too large.
    is_stopped: bool = False
    #: What the copy task waits for, None while idle.
    step: Step | None = None
    failures: Sequence[TaskFailure] = ()
    remote_segments: int = 0
    remote_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LocalSegmentStatus:
    """One local segment, and why it is (only) local. `last_offset` of an empty one is `base_offset` - 1."""

    base_offset: int
    last_offset: int
    size_bytes: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class TierStatus:
    """The status of a partition. Lag is what is sealed and not remote."""

    topic: str
    partition: int
    reason: Reason
    #: The reason in a sentence, with numbers.
    text: str
    log_start_offset: int
    local_log_start_offset: int
    highest_remote_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    lag_segments: int
    lag_bytes: int
    local_segments: int
    local_bytes: int
    remote_segments: int
    remote_bytes: int
    failures: tuple[TaskFailure, ...] = ()
    segments: tuple[LocalSegmentStatus, ...] = field(default=(), repr=False)

    @property
    def is_failing(self) -> bool:
        """Whether a task of the partition fails, copying or deleting."""
        return self.reason is Reason.FAILING or bool(self.failures)


def partition_status(facts: TierFacts) -> TierStatus:
    """Return why the oldest local-only segment is not remote, and the same for every local segment."""
    segments = tuple(_segment_statuses(facts))
    lagging = [one for one in segments[:-1] if one.reason is not Reason.LOCAL_RETENTION]
    head = next((one for one in segments if one.reason is not Reason.LOCAL_RETENTION), None)
    reason = Reason.UP_TO_DATE if head is None else head.reason
    return TierStatus(
        topic=facts.topic,
        partition=facts.partition,
        reason=reason,
        text=_text(reason, head, facts),
        log_start_offset=facts.log_start_offset,
        local_log_start_offset=facts.local_log_start_offset,
        highest_remote_offset=facts.highest_remote_offset,
        last_stable_offset=facts.last_stable_offset,
        high_watermark=facts.high_watermark,
        log_end_offset=facts.log_end_offset,
        lag_segments=len(lagging),
        lag_bytes=sum(one.size_bytes for one in lagging),
        local_segments=len(segments),
        local_bytes=sum(one.size_bytes for one in segments),
        remote_segments=facts.remote_segments,
        remote_bytes=facts.remote_bytes,
        failures=tuple(facts.failures),
        segments=segments,
    )


def _segment_statuses(facts: TierFacts) -> list[LocalSegmentStatus]:
    segments, highest = facts.segments, facts.highest_remote_offset
    ends = [following.base_offset for _, following in itertools.pairwise(segments)] + [facts.log_end_offset]
    first_local = max(highest + 1, facts.log_start_offset)
    pending = [at for at, end in enumerate(ends) if end > first_local and at + 1 < len(segments)]
    reasons = dict(zip(pending, _reasons(facts, pending, ends, first_local), strict=True))
    found = []
    for at, (segment, end) in enumerate(zip(segments, ends, strict=True)):
        reason = reasons.get(at, Reason.LOCAL_RETENTION)
        if at + 1 == len(segments):
            reason = _of_active(facts, is_empty=end <= segment.base_offset)
        found.append(LocalSegmentStatus(segment.base_offset, end - 1, segment.size_bytes, reason))
    return found


def _of_active(facts: TierFacts, *, is_empty: bool) -> Reason:
    whole = _of_partition(facts)
    if whole in (Reason.DISABLED, Reason.COPY_DISABLED, Reason.FOLLOWER):
        return whole
    return Reason.UP_TO_DATE if is_empty else Reason.ACTIVE_SEGMENT


def _of_partition(facts: TierFacts) -> Reason | None:
    """Return a reason that holds for all segments."""
    if not facts.is_available or not facts.config.remote_storage_enable:
        return Reason.DISABLED
    if facts.config.remote_log_copy_disable:
        return Reason.COPY_DISABLED
    return None if facts.is_leader else Reason.FOLLOWER


def _reasons(facts: TierFacts, pending: Sequence[int], ends: Sequence[int], first_local: int) -> list[Reason]:
    """Return the reasons of the sealed segments that are not remote, in order."""
    whole = _of_partition(facts)
    if whole is not None:
        return [whole] * len(pending)
    segments = cast("Sequence[LogSegment]", facts.segments)  # `candidates` needs no more than these facts
    due = {
        candidate.segment.base_offset
        for candidate in candidates(segments, first_local, facts.last_stable_offset, facts.config, facts.now_ms)
    }
    found: list[Reason] = []
    for at in pending:
        if facts.segments[at].base_offset in due:
            found.append(_of_due(facts, is_first=not found))
        elif ends[at] > facts.last_stable_offset:
            found.append(Reason.ABOVE_LSO)
        else:
            found.append(Reason.COPY_LAG)
    return found


def _of_due(facts: TierFacts, *, is_first: bool) -> Reason:
    """Return the reason of a due segment: the first is in progress or blocked, the others wait for it."""
    if not is_first:
        return Reason.WAITING
    if facts.is_stopped or any(failure.task == "copy" for failure in facts.failures):
        return Reason.FAILING
    if facts.step is None:
        return Reason.WAITING
    return Reason.QUOTA if facts.step.kind is StepKind.QUOTA else Reason.COPYING


def _text(reason: Reason, head: LocalSegmentStatus | None, facts: TierFacts) -> str:
    where = "" if head is None or reason is Reason.UP_TO_DATE else f"offset {head.base_offset} on: "
    if reason is Reason.FAILING:
        copying = next((failure for failure in facts.failures if failure.task == "copy"), None)
        if facts.is_stopped or copying is None:
            return f"{where}copying has stopped: the plugin returned more custom metadata than is allowed"
        times = "once" if copying.times == 1 else f"{copying.times} times in a row"
        return f"{where}the copy has failed {times}: {copying.error}"
    if reason is Reason.ABOVE_LSO:
        return f"{where}{MEANING[reason]} (LSO {facts.last_stable_offset})"
    if reason is Reason.COPY_LAG:
        config = facts.config
        return (
            f"{where}{MEANING[reason]} (remote.copy.lag.ms={config.remote_copy_lag_ms},"
            f" remote.copy.lag.bytes={config.remote_copy_lag_bytes})"
        )
    if reason is Reason.DISABLED and not facts.is_available:
        return f"{where}the broker has no remote tier: remote.log.storage.system.enable is false"
    if reason is Reason.DISABLED:
        return f"{where}remote.storage.enable is false"
    if reason is Reason.COPYING and facts.step is not None:
        return f"{where}{MEANING[reason]}; it waits for {facts.step.detail}"
    return f"{where}{MEANING[reason]}"
