"""Retention in the remote tier, and the removal of what failed copies and deletions left (Kafka's RLMExpirationTask)."""

from __future__ import annotations

import logging

from stratalog.remote.api import RemoteLogMetadataManager, RemoteLogSegmentMetadata, TopicIdPartition
from stratalog.remote.cancellation import Cancellation
from stratalog.remote.copied_offset import find_remote_start
from stratalog.remote.copy_task import CopiesInFlight
from stratalog.remote.deletion import SegmentDeleter
from stratalog.remote.lineage import lineage_of
from stratalog.remote.log_view import LogView, segments_not_remote
from stratalog.remote.retention import Expiration, ExpirationReason, RetentionFacts, plan_expiration
from stratalog.remote.segment_state import RemoteLogSegmentState
from stratalog.remote.tier_facts import DeleteLag, RemoteTally
from stratalog.remote.watchdog import Progress
from stratalog.util.clock import Clock

logger = logging.getLogger(__name__)

_BY_RETENTION = (ExpirationReason.TIME, ExpirationReason.SIZE)


class ExpirationTask:
    """Expires one partition. One thread at a time runs it; `delete_lag` and `tally` may be read at any time."""

    def __init__(
        self,
        log: LogView,
        partition: TopicIdPartition,
        rlmm: RemoteLogMetadataManager,
        *,
        deleter: SegmentDeleter,
        in_flight: CopiesInFlight,
        clock: Clock,
        progress: Progress,
        cancelled: Cancellation,
    ) -> None:
        self._log = log
        self._partition = partition
        self._rlmm = rlmm
        self._deleter = deleter
        self._in_flight = in_flight
        self._clock = clock
        self._progress = progress
        self._cancelled = cancelled
        self._start_checked = False
        self.delete_lag = DeleteLag()
        self.tally = RemoteTally()

    def run(self) -> int:
        """Delete what may go; return how many segments went. Raises RemoteStorageError at the first that did not.

        The log start offset is moved first: from then on no reader asks for what is being deleted.
        """
        log = self._log
        self._progress.note("the metadata of its remote segments")
        if not self._start_checked:
            self._check_start()
            self._start_checked = True
        plan = plan_expiration(self._settled_segments(), self._facts())
        if plan.expirations:
            self._deleter.ensure_allowed()
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
        """Let the log begin where there is something to read: a checkpoint may be older than the last expiration.

        It may also be older than the last deletion of records, which is known by the leader epochs: nothing is read of an
        offset whose epoch is not known.
        """
        log = self._log
        first = find_remote_start(self._rlmm, self._partition, log)
        start = log.local_log_start_offset
        if first is not None:
            known_from = log.leader_epochs.entries[0].start_offset
            is_cut = first.start_offset < known_from <= first.end_offset
            start = known_from if is_cut else min(start, first.start_offset)
        if start > log.log_start_offset:
            log.increment_log_start_offset(start, "nothing before that is in the remote tier")

    def _facts(self) -> RetentionFacts:
        log = self._log
        config = log.config
        deletes = "delete" in config.cleanup_policy
        return RetentionFacts(
            retention_ms=config.retention_ms if deletes else -1,
            retention_bytes=config.retention_bytes if deletes else -1,
            now_ms=self._clock.now_ms(),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            only_local_bytes=sum(segment.size_bytes for segment in segments_not_remote(log)),
            lineage=lineage_of(log.leader_epochs.entries),
        )

    def _settled_segments(self) -> list[RemoteLogSegmentMetadata]:
        """All segments but those that are being copied.

        A copy may finish between a look at its metadata and a look at the copies in flight. So an unfinished one that is
        not in flight is looked at once more: its id was registered before its metadata, and leaves after its last event.
        """
        listed = self._tallied()
        unfinished = {
            segment.segment_id
            for segment in listed
            if segment.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
        }
        if not unfinished:
            return listed
        failed = {segment_id for segment_id in unfinished if segment_id not in self._in_flight}
        return [
            segment
            for segment in self._rlmm.list_remote_log_segments(self._partition)
            if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED or segment.segment_id in failed
        ]

    def _tallied(self) -> list[RemoteLogSegmentMetadata]:
        """All segments, added up."""
        started = self._clock.monotonic()
        listed = self._rlmm.list_remote_log_segments(self._partition)
        size = sum(segment.segment_size_bytes for segment in listed if segment.is_readable)
        self.tally = RemoteTally(len(listed), size, (self._clock.monotonic() - started) * 1000)
        return listed

    def _delete(self, expiration: Expiration) -> None:
        segment, reason = expiration.segment, expiration.reason
        self._progress.note(f"the deletion of remote segment {segment.segment_id}")
        level = logging.INFO if reason in _BY_RETENTION else logging.DEBUG
        logger.log(level, "Deleting remote segment %s: %s", segment.segment_id, reason.value)
        self._deleter.delete(segment)

    def _set_lag(self, left: list[Expiration]) -> None:
        self.delete_lag = DeleteLag(len(left), sum(e.segment.segment_size_bytes for e in left))
