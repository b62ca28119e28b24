"""Remote retention, and removal of the remains of failed copies and deletions.

Kafka's RLMExpirationTask.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from stratalog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    ensure_owner,
    lineage_of,
)
from stratalog.remote.reading import KeepsVersions
from stratalog.remote.tier.cancellation import Cancellation
from stratalog.remote.tier.copied_offset import find_remote_start
from stratalog.remote.tier.log_view import LogView, segments_not_remote
from stratalog.remote.tier.retention import (
    Expiration,
    ExpirationPlan,
    ExpirationReason,
    Quiet,
    RetentionFacts,
    plan_expiration,
    quiet_until,
)
from stratalog.remote.tier.segment_deletion import delete_segment
from stratalog.remote.tier.services import TierServices
from stratalog.remote.tier.tier_facts import RemoteTally, TierLag
from stratalog.remote.tier.tiering_task import TieringTask
from stratalog.remote.tier.watchdog import StepKind, TaskProgress

logger = logging.getLogger(__name__)

_BY_RETENTION = (ExpirationReason.TIME, ExpirationReason.SIZE)


@dataclass(frozen=True, slots=True)
class _Idle:
    """The facts of a check that found nothing to do. It need not be repeated while they are unchanged."""

    version: int
    facts: RetentionFacts
    quiet: Quiet
    last_offset: int

    def still_is(self, facts: RetentionFacts, version: int | None) -> bool:
        seen = replace(
            self.facts,
            now_ms=facts.now_ms,
            only_local_bytes=facts.only_local_bytes,
            log_end_offset=facts.log_end_offset,
        )
        return (
            version == self.version
            and facts == seen
            and facts.log_end_offset > self.last_offset  # a segment after the end is in no lineage
            and self.quiet.holds(facts.now_ms, facts.only_local_bytes)
        )


def _idle(
    segments: list[RemoteLogSegmentMetadata], facts: RetentionFacts, version: int | None, plan: ExpirationPlan
) -> _Idle | None:
    """Return None when there is something to do now or soon: all copies must be finished."""
    if version is None or plan.expirations or not all(segment.is_readable for segment in segments):
        return None
    last_offset = max((segment.end_offset for segment in segments), default=-1)
    if last_offset >= facts.log_end_offset:
        return None
    return _Idle(version, facts, quiet_until(segments, facts), last_offset)


class ExpirationTask(TieringTask):
    """Expires one partition. Only one thread at a time runs it; `delete_lag` and `tally` may be read at any time."""

    def __init__(
        self,
        services: TierServices,
        log: LogView,
        partition: TopicIdPartition,
        *,
        progress: TaskProgress,
        cancelled: Cancellation,
    ) -> None:
        super().__init__(services, log, partition, progress=progress, cancelled=cancelled)
        #: The local log start at the last check of the log start.
        self._checked_from: int | None = None
        self._idle: _Idle | None = None
        self.delete_lag = TierLag()
        self.tally = RemoteTally()

    def run(self) -> int:
        """Delete expired segments and return their number. Raises RemoteStorageError at the first failure.

        The log start offset is moved first, so that no reader requests what is being deleted.
        """
        log = self._log
        self.progress.note(StepKind.METADATA, "the metadata of its remote segments")
        if self._checked_from != log.local_log_start_offset:
            self._checked_from = log.local_log_start_offset
            self._check_start()
        facts, version = self._facts(), self._metadata_version()
        if self._idle is not None and self._idle.still_is(facts, version):
            return 0
        segments = self._settled_segments()
        plan = plan_expiration(segments, facts)
        self._idle = _idle(segments, facts, version, plan)
        if plan.expirations:
            ensure_owner(self._services.rsm)
        if plan.log_start_offset > log.log_start_offset:
            self._cancelled.unless_set(
                lambda: log.increment_log_start_offset(plan.log_start_offset, "remote retention")
            )
        left = list(plan.expirations)
        try:
            while left and not self._cancelled.is_set():
                self._set_lag(left)
                self._delete(left[0])
                del left[0]
        finally:
            self._set_lag(left)
        return len(plan.expirations) - len(left)

    def _check_start(self) -> None:
        """Move the log start to the first readable offset: a checkpoint may be older than the last expiration.

        It may also be older than the last deletion of records. Leader epochs show that: an offset without an epoch is
        not readable. A former leader may have deleted records and crashed before this broker learned of it; records not
        copied for that reason are gone after local retention, so each change of the local log start is checked.
        """
        log = self._log
        first = find_remote_start(self._services.rlmm, self._partition, log)
        start = log.local_log_start_offset
        if first is not None:
            known_from = log.leader_epochs.entries[0].start_offset
            is_cut = first.start_offset < known_from <= first.end_offset
            # Its first batches may be older than the epochs that its leader still knew.
            readable_from = max(first.start_offset, min(first.segment_leader_epochs.values()))
            start = known_from if is_cut else min(start, readable_from)
        if start > log.log_start_offset:
            log.increment_log_start_offset(start, "nothing before that is in the remote tier")

    def _facts(self) -> RetentionFacts:
        log = self._log
        config = log.config
        deletes = "delete" in config.cleanup_policy
        return RetentionFacts(
            retention_ms=config.retention_ms if deletes else -1,
            retention_bytes=config.retention_bytes if deletes else -1,
            now_ms=self._services.clock.now_ms(),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            only_local_bytes=sum(segment.size_bytes for segment in segments_not_remote(log)),
            lineage=lineage_of(log.leader_epochs.entries),
        )

    def _metadata_version(self) -> int | None:
        rlmm = self._services.rlmm
        return rlmm.metadata_version(self._partition) if isinstance(rlmm, KeepsVersions) else None

    def _settled_segments(self) -> list[RemoteLogSegmentMetadata]:
        """Return all segments except those being copied.

        A copy may finish between reading its metadata and reading the copies in flight. So an unfinished one that is
        not in flight is read again: its id is registered before its metadata, and removed after its last event.
        """
        listed = self._tallied()
        unfinished = {
            segment.segment_id for segment in listed if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
        }
        if not unfinished:
            return listed
        failed = {segment_id for segment_id in unfinished if segment_id not in self._services.in_flight}
        return [
            segment
            for segment in self._services.rlmm.list_remote_log_segments(self._partition)
            if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED
            or (segment.segment_id in failed and self._may_judge(segment))
        ]

    def _may_judge(self, unfinished: RemoteLogSegmentMetadata) -> bool:
        """Return whether a copy that is not in flight here has certainly failed.

        A former leader that does not know that it was replaced may be finishing it. If it finished before the deletion,
        its offsets would count as copied. So, as in Kafka, it stays until the log starts after it.
        """
        services = self._services
        is_own = not services.is_shared or unfinished.broker_id == services.broker_id
        return is_own or unfinished.end_offset < self._log.log_start_offset

    def _tallied(self) -> list[RemoteLogSegmentMetadata]:
        started = self._services.clock.monotonic()
        listed = self._services.rlmm.list_remote_log_segments(self._partition)
        size = sum(segment.segment_size_bytes for segment in listed if segment.is_readable)
        self.tally = RemoteTally(len(listed), size, (self._services.clock.monotonic() - started) * 1000)
        return listed

    def _delete(self, expiration: Expiration) -> None:
        segment, reason = expiration.segment, expiration.reason
        self.progress.note(StepKind.DELETION, f"the deletion of remote segment {segment.segment_id}")
        level = logging.INFO if reason in _BY_RETENTION else logging.DEBUG
        logger.log(level, "Deleting remote segment %s: %s", segment.segment_id, reason.value)
        delete_segment(self._services, segment)

    def _set_lag(self, left: list[Expiration]) -> None:
        self.delete_lag = TierLag(len(left), sum(e.segment.segment_size_bytes for e in left))
