"""Copy sealed segments of one partition to the remote tier (Kafka's RLMCopyTask)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from stratalog.config import LogConfig, changed_properties
from stratalog.errors import (
    CustomMetadataSizeLimitExceededError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    StratalogError,
)
from stratalog.log.format import encode_epochs, snapshot_file
from stratalog.log.segment import LogSegment
from stratalog.remote.api import (
    CustomMetadata,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    ensure_owner,
    ensure_reachable,
    is_read_only,
)
from stratalog.remote.tier.copied_offset import find_highest_remote_offset
from stratalog.remote.tier.segment_check import CheckedSegment, check_segment
from stratalog.remote.tier.segment_deletion import delete_segment
from stratalog.remote.tier.tiering_task import TieringTask
from stratalog.remote.tier.watchdog import StepKind

logger = logging.getLogger(__name__)

_QUOTA_POLL_MS = 1_000


@dataclass(frozen=True, slots=True)
class CopyCandidate:
    """A sealed segment and the base offset of the one after it."""

    segment: LogSegment
    next_base_offset: int


def candidates(
    segments: Sequence[LogSegment], from_offset: int, last_stable_offset: int, config: LogConfig, now_ms: int
) -> list[CopyCandidate]:
    """Return the segments to copy, in order.

    They are sealed, end at or above `from_offset`, and are wholly below the last stable offset.

    Stops at the first one held back by the copy lag: it is younger than `remote.copy.lag.ms`, and fewer than
    `remote.copy.lag.bytes` follow it. A value of 0 means at once, -1 as long as local retention allows.
    """
    found: list[CopyCandidate] = []
    after = sum(segment.size_bytes for segment in segments)
    for segment, following in itertools.pairwise(segments):
        after -= segment.size_bytes
        if following.base_offset <= from_offset:
            continue
        if following.base_offset > last_stable_offset or not _is_due(segment, after, config, now_ms):
            break
        found.append(CopyCandidate(segment, following.base_offset))
    return found


def _is_due(segment: LogSegment, bytes_after: int, config: LogConfig, now_ms: int) -> bool:
    lag_ms, lag_bytes = config.remote_copy_lag_ms, config.remote_copy_lag_bytes
    if lag_ms == -1:
        lag_ms = config.effective_local_retention_ms
    if lag_bytes == -1:
        lag_bytes = config.effective_local_retention_bytes
    if lag_ms == 0 or lag_bytes == 0:
        return True
    old = lag_ms > 0 and now_ms - segment.largest_timestamp() >= lag_ms
    return old or (lag_bytes > 0 and bytes_after >= lag_bytes)


class CopyTask(TieringTask):
    """Copies one partition. Only one thread at a time runs it."""

    @property
    def is_read_only(self) -> bool:
        """Whether the store is intentionally read-only for this broker."""
        return is_read_only(self._services.rsm)

    def run(self) -> int:
        """Copy every due segment. Return how many were copied.

        Stops at the first failure: RetriableRemoteStorageError if the next run may succeed; RemoteStorageError,
        CorruptRecordError or CorruptIndexError if an operator has to act; CustomMetadataSizeLimitExceededError if
        copying this partition must end.
        """
        log = self._log
        self.progress.note(StepKind.METADATA, "the metadata of its remote segments")
        copied_through = find_highest_remote_offset(self._services.rlmm, self._partition, log)
        self._release_local(copied_through)
        from_offset = max(copied_through + 1, log.log_start_offset)
        due = candidates(log.segments, from_offset, log.last_stable_offset, log.config, self._services.clock.now_ms())
        copied = 0
        for candidate in due:
            if self._cancelled.is_set() or not self._wait_for_quota(candidate.segment.size_bytes):
                break
            self._copy_counted(candidate)
            copied += 1
        return copied

    def _release_local(self, offset: int) -> None:
        """Allow local retention to delete segments up to `offset`."""
        log = self._log
        if offset > log.highest_offset_in_remote_storage:
            self._cancelled.unless_set(lambda: log.update_highest_offset_in_remote_storage(offset))

    def _wait_for_quota(self, size: int) -> bool:
        """Wait until the copy quota allows another segment. Return False if the task was cancelled first."""
        self.progress.note(
            StepKind.QUOTA, f"the copy quota of {self._services.copy_quota.bytes_per_second} bytes per second"
        )
        while (throttle_ms := self._services.copy_quota.acquire(size)) > 0:
            if self._cancelled.wait(min(throttle_ms, _QUOTA_POLL_MS) / 1000):
                return False
        return True

    def _copy_counted(self, candidate: CopyCandidate) -> None:
        counts = self._services.counts.topic(self._partition.topic)
        counts.copy_requests += 1
        try:
            self._copy(candidate)
        except Exception:
            counts.copy_errors += 1
            raise
        counts.copy_bytes += candidate.segment.size_bytes

    def _copy(self, candidate: CopyCandidate) -> None:
        segment_id = RemoteLogSegmentId.generate_new(self._partition)
        self._services.in_flight.begin(segment_id)
        try:
            self._copy_as(segment_id, candidate)
        finally:
            self._services.in_flight.end(segment_id)

    def _copy_as(self, segment_id: RemoteLogSegmentId, candidate: CopyCandidate) -> None:
        segment, end_offset = candidate.segment, candidate.next_base_offset - 1
        ensure_reachable(self._services.rsm, segment.log_path, segment.size_bytes)
        ensure_owner(self._services.rsm)
        self.progress.note(StepKind.CHECK, f"the check of {segment.log_path.name}")
        checked = check_segment(segment, candidate.next_base_offset, fs=self._services.fs)
        metadata = self._started(segment_id, candidate, checked.size_bytes)
        self.progress.note(StepKind.METADATA, f"the metadata of {segment.log_path.name}")
        _result(self._services.rlmm.add_remote_log_segment_metadata(metadata))
        self.progress.note(
            StepKind.STORE, f"the store, which gets {segment.log_path.name} of {segment.size_bytes} bytes"
        )
        try:
            custom = self._services.rsm.copy_log_segment_data(metadata, self._data(candidate, checked))
            if custom is not None and len(custom.value) > self._services.custom_metadata_bytes_max:
                raise CustomMetadataSizeLimitExceededError(
                    f"{self._partition}: the storage plugin returned {len(custom.value)} bytes of custom metadata, "
                    f"remote.log.metadata.custom.metadata.max.bytes is {self._services.custom_metadata_bytes_max}"
                )
        except Exception as error:
            if not self._cancelled.is_resigned:
                self._clean_up(metadata, error)
            raise
        if self._cancelled.is_resigned:
            raise self._abandoned(metadata, "this broker no longer leads the partition")
        self.progress.note(StepKind.METADATA, f"the metadata of {segment.log_path.name}")
        self._finish(metadata, custom)
        self._release_local(end_offset)
        logger.info(
            "Copied %s to the remote tier as %s",
            segment.log_path.name,
            segment_id,
            extra={"partition": str(self._partition), "base_offset": segment.base_offset, "bytes": checked.size_bytes},
        )

    def _started(
        self, segment_id: RemoteLogSegmentId, candidate: CopyCandidate, size_bytes: int
    ) -> RemoteLogSegmentMetadata:
        segment = candidate.segment
        epochs = self._log.leader_epochs.entries_in_range(segment.base_offset, candidate.next_base_offset)
        if not epochs:
            raise RemoteStorageError(
                f"{segment.log_path}: no leader epoch is known of offsets {segment.base_offset} to "
                f"{candidate.next_base_offset - 1}; the segment cannot be copied"
            )
        return RemoteLogSegmentMetadata(
            segment_id=segment_id,
            start_offset=segment.base_offset,
            end_offset=candidate.next_base_offset - 1,
            max_timestamp_ms=segment.largest_timestamp(),
            broker_id=self._services.broker_id,
            event_timestamp_ms=self._services.clock.now_ms(),
            segment_size_bytes=size_bytes,
            segment_leader_epochs={entry.epoch: entry.start_offset for entry in epochs},
            txn_index_empty=segment.txn_index.is_empty,
        )

    def _data(self, candidate: CopyCandidate, checked: CheckedSegment) -> LogSegmentData:
        segment = candidate.segment
        snapshot = self._log.directory / snapshot_file(candidate.next_base_offset)
        epochs = self._log.leader_epochs.entries_up_to(candidate.next_base_offset)
        return LogSegmentData(
            log_segment=segment.log_path,
            offset_index=segment.offset_index_path,
            time_index=segment.time_index_path,
            transaction_index=segment.txn_index.path if segment.txn_index.exists else None,
            producer_snapshot_index=snapshot if self._services.fs.exists(snapshot) else None,
            leader_epoch_index=encode_epochs(epochs),
            offset_index_entry_size=segment.offset_index.entry_size,
            on_progress=lambda _: self.progress.advance(),
            block_facts=checked.block_facts,
            topic_config=changed_properties(self._log.config),
            partition_count=self._services.partition_count(self._partition.topic_id),
        )

    def _finished(
        self, metadata: RemoteLogSegmentMetadata, custom: CustomMetadata | None
    ) -> RemoteLogSegmentMetadataUpdate:
        return RemoteLogSegmentMetadataUpdate(
            metadata.segment_id,
            self._services.clock.now_ms(),
            custom,
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            self._services.broker_id,
        )

    def _finish(self, metadata: RemoteLogSegmentMetadata, custom: CustomMetadata | None) -> None:
        """Make the copy readable. RetriableRemoteStorageError if another leader has deleted it."""
        rlmm = self._services.rlmm
        try:
            _result(rlmm.update_remote_log_segment_metadata(self._finished(metadata, custom)))
        except RemoteResourceNotFoundError:
            if not self._services.is_shared:
                raise
        else:
            end = metadata.last_epoch, metadata.end_offset
            if not self._services.is_shared or rlmm.remote_log_segment_metadata(self._partition, *end) is not None:
                return
        raise self._abandoned(metadata, "another broker has deleted it")

    def _abandoned(self, metadata: RemoteLogSegmentMetadata, why: str) -> RetriableRemoteStorageError:
        """Delete the objects of an abandoned copy. Its metadata are up to another leader."""
        try:
            self._services.rsm.delete_log_segment_data(metadata)
        except (StratalogError, OSError) as error:
            logger.warning("What was copied as %s is left in the store: %s", metadata.segment_id, error)
        return RetriableRemoteStorageError(f"{metadata.segment_id} was copied in vain: {why}")

    def _clean_up(self, metadata: RemoteLogSegmentMetadata, why: Exception) -> None:
        """Remove what a failed copy left, if possible now; else the expiration task does it later."""
        if isinstance(why, RetriableRemoteStorageError):
            return  # the store already has problems
        try:
            delete_segment(self._services, metadata)
        except (StratalogError, OSError) as error:
            logger.debug("What is left of %s is cleaned up later: %s", metadata.segment_id, error)


def _result(future: Future[None]) -> None:
    future.result()
