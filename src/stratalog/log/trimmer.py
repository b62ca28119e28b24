"""Shorten a log: move its log start offset, apply retention, truncate its end.

Keeps segments, leader epochs and producer state consistent. Not thread-safe: hold the partition's lock. Source: Kafka's
`UnifiedLog.maybeIncrementLogStartOffset`, `deleteOldSegments`, `truncateTo`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.errors import OffsetOutOfRangeError
from stratalog.log.format import EpochEntry
from stratalog.log.leader_epochs import LeaderEpochCache
from stratalog.log.local_log import LocalLog
from stratalog.log.producers import rebuild_producer_state
from stratalog.log.retention import (
    DeletedSegment,
    DeletionReason,
    RetentionLimits,
    RetentionPlan,
    is_tiered,
    plan_retention,
)
from stratalog.log.segment import SegmentTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteHistory:
    """What a replica that begins after the remote tier has to know of it.

    `epochs` and `producer_snapshot` (bytes of the file) are those of the offsets below `next_offset`.
    """

    next_offset: int
    log_start_offset: int
    epochs: Sequence[EpochEntry]
    producer_snapshot: bytes


class Trimmer:
    """Truncation and deletion for `PartitionLog`, whose methods of the same names describe them."""

    def __init__(self, local: LocalLog, leader_epochs: LeaderEpochCache) -> None:
        self._local = local
        self._leader_epochs = leader_epochs
        self._producers = local.producers

    def increment_log_start_offset(self, offset: int, reason: str) -> bool:
        local = self._local
        if offset > local.high_watermark.offset:
            raise OffsetOutOfRangeError(
                f"{local.name}: the log cannot begin at offset {offset}, which is above the high watermark"
                f" {local.high_watermark.offset}"
            )
        if offset <= local.log_start_offset:
            local.local_log_start_offset = max(local.local_log_start_offset, offset)
            return False
        self._leader_epochs.truncate_from_start(offset)  # may fail, before anything else is changed
        local.local_log_start_offset = max(local.local_log_start_offset, offset)
        local.log_start_offset = offset
        local.recovery_point = max(local.recovery_point, offset)
        self._producers.on_log_start_offset(offset)
        local.first_unstable_offset = self._producers.first_unstable_offset
        local.bounds_changed()
        logger.info("%s: log start offset is now %d: %s", local.name, offset, reason)
        return True

    def delete_old_segments(self) -> list[DeletedSegment]:
        local = self._local
        if local.closed:
            return []
        segments = local.segments
        limits = RetentionLimits.of(
            local.config,
            log_start_offset=local.log_start_offset,
            local_log_start_offset=local.local_log_start_offset,
            high_watermark=local.high_watermark.offset,
            log_end_offset=local.end.offset,
            highest_offset_in_remote_storage=local.highest_offset_in_remote_storage,
        )
        plan = _plan(segments, limits, local.clock.now_ms())
        if plan.roll_active:
            local.roll()
        count = len(plan.deletions)
        if count == 0:
            return []
        if count == len(segments):
            local.roll()
        self._delete_first(count)
        deleted = [
            DeletedSegment(segment.base_offset, segment.size_bytes, reason)
            for segment, reason in zip(segments.all, plan.deletions, strict=False)
        ]
        for segment in deleted:
            logger.info(
                "%s: deleted segment %d (%d bytes): %s",
                local.name,
                segment.base_offset,
                segment.size_bytes,
                segment.reason.value,
            )
        return deleted

    def _delete_first(self, count: int) -> None:
        local = self._local
        new_start = local.segments.all[count].base_offset
        if is_tiered(local.config):
            local.local_log_start_offset = max(local.local_log_start_offset, new_start)
        else:
            self.increment_log_start_offset(new_start, "segments were deleted")
        local.drop_first(count)

    def truncate_to(self, offset: int) -> bool:
        local = self._local
        if offset >= local.end.offset:
            self._leader_epochs.truncate_from_end(local.end.offset)
            return False
        if local.segments.all[0].base_offset > offset:
            self.truncate_fully_and_start_at(offset, None)
            return True
        kept = local.kept_up_to(offset)
        local.end_will_be(offset)
        with local.whole_or_unusable("truncation"):
            local.truncate_to(offset, kept)
            self._leader_epochs.truncate_from_end(offset)
            self._reload_producers(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None) -> None:
        local, flushed = self._local, self._local.recovery_point
        local.end_will_be(min(offset, local.segments.all[0].base_offset))
        with local.whole_or_unusable("truncation"):
            local.restart_at(offset, offset if log_start_offset is None else log_start_offset)
            self._leader_epochs.clear()
            self._producers.truncate_fully_and_start_at(offset)
            self._reload_producers(offset)
            local.fs.sync_dir(local.directory)
        # It was lowered while a crash could have left some of the segments. Now there is nothing to recover.
        local.recovery_point = max(local.recovery_point, min(flushed, offset))
        local.bounds_changed()

    def begin_behind_remote(self, history: RemoteHistory) -> None:
        local, offset = self._local, history.next_offset
        local.end_will_be(min(offset, local.segments.all[0].base_offset))
        with local.whole_or_unusable("the restart after the remote tier"):
            local.restart_at(offset, min(history.log_start_offset, offset))
            self._leader_epochs.clear()
            self._producers.begin_with(offset, history.producer_snapshot)
            # Last: an empty log without epochs shows that this was interrupted.
            self._leader_epochs.assign_all(history.epochs)
            self._leader_epochs.truncate_from_start(local.log_start_offset)
            local.first_unstable_offset = self._producers.first_unstable_offset
            local.fs.sync_dir(local.directory)
        local.bounds_changed()

    def _reload_producers(self, end_offset: int) -> None:
        local, producers = self._local, self._producers
        rebuild_producer_state(
            producers,
            local.segments,
            log_start_offset=local.log_start_offset,
            last_offset=end_offset,
            now_ms=local.clock.now_ms(),
            after_clean_shutdown=False,
        )
        # Nothing changed below the high watermark, nor what is unstable there.
        if local.high_watermark.offset >= end_offset:
            producers.on_high_watermark(end_offset)
            local.first_unstable_offset = producers.first_unstable_offset


def _plan(segments: SegmentTable, limits: RetentionLimits, now_ms: int) -> RetentionPlan:
    """Plan deletions. A segment is not deleted for its age because of its time index alone."""
    while True:
        plan = plan_retention(segments.all, limits, now_ms)
        by_age = [
            segment
            for segment, reason in zip(segments.all, plan.deletions, strict=False)
            if reason is DeletionReason.TIME
        ]
        if not any(segment.prove_max_timestamp() for segment in by_age):
            return plan
