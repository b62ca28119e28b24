"""The copy of sealed segments of one partition to the remote tier (Kafka's RLMCopyTask)."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from uuid import UUID

from stratalog.config import LogConfig, changed_properties
from stratalog.errors import (
    CustomMetadataSizeLimitExceededError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    StratalogError,
)
from stratalog.log.format import encode_epochs, snapshot_file
from stratalog.log.segment import LogSegment
from stratalog.remote.api import (
    CustomMetadata,
    LogSegmentData,
    RemoteLogMetadataManager,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteStorageManager,
    TopicIdPartition,
    ensure_owner,
    ensure_reachable,
    is_read_only,
)
from stratalog.remote.tier.cancellation import Cancellation
from stratalog.remote.tier.copied_offset import find_highest_remote_offset
from stratalog.remote.tier.counters import RemoteCounts
from stratalog.remote.tier.deletion import SegmentDeleter
from stratalog.remote.tier.log_view import LogView
from stratalog.remote.tier.quota import RateQuota
from stratalog.remote.tier.segment_check import CheckedSegment, check_segment
from stratalog.remote.tier.watchdog import Progress
from stratalog.util import Clock, FileSystem

logger = logging.getLogger(__name__)

_QUOTA_POLL_MS = 1_000

#: How many partitions the topic of an id has, None when that is not known.
PartitionCount = Callable[[UUID], int | None]


def not_known(_: UUID) -> None:
    return None


#: How the step begins in which a copy waits for its quota.
COPY_QUOTA = "the copy quota"


class CopiesInFlight:
    """Ids of the segments that are being copied by this process right now. Thread-safe.

    An id is in here from before its metadata is added until after its copy has finished or failed for good.
    """

    def __init__(self) -> None:
        self._ids: set[RemoteLogSegmentId] = set()
        self._lock = threading.Lock()

    def begin(self, segment_id: RemoteLogSegmentId) -> None:
        with self._lock:
            self._ids.add(segment_id)

    def end(self, segment_id: RemoteLogSegmentId) -> None:
        with self._lock:
            self._ids.discard(segment_id)

    def __contains__(self, segment_id: RemoteLogSegmentId) -> bool:
        with self._lock:
            return segment_id in self._ids


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sealed segment and the base offset of the one after it."""

    segment: LogSegment
    next_base_offset: int


def candidates(
    segments: Sequence[LogSegment], from_offset: int, last_stable_offset: int, config: LogConfig, now_ms: int
) -> list[Candidate]:
    """The segments to copy, in order: sealed, holding `from_offset` or later ones, all below the last stable offset.

    Stops at the first one that the copy lag keeps back: it is younger than `remote.copy.lag.ms`, and fewer than
    `remote.copy.lag.bytes` follow it. Either being 0 means at once; -1 means as long as local retention allows.
    """
    found: list[Candidate] = []
    after = sum(segment.size_bytes for segment in segments)
    for segment, following in itertools.pairwise(segments):
        after -= segment.size_bytes
        if following.base_offset <= from_offset:
            continue
        if following.base_offset > last_stable_offset or not _is_due(segment, after, config, now_ms):
            break
        found.append(Candidate(segment, following.base_offset))
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


class CopyTask:
    """Copies what is due of one partition. One thread at a time runs it."""

    def __init__(
        self,
        log: LogView,
        partition: TopicIdPartition,
        rlmm: RemoteLogMetadataManager,
        rsm: RemoteStorageManager,
        *,
        deleter: SegmentDeleter,
        in_flight: CopiesInFlight,
        quota: RateQuota,
        counts: RemoteCounts,
        progress: Progress,
        broker_id: int,
        custom_metadata_bytes_max: int,
        clock: Clock,
        fs: FileSystem,
        cancelled: Cancellation,
        partition_count: PartitionCount = not_known,
    ) -> None:
        self._log = log
        self._partition = partition
        self._rlmm = rlmm
        self._rsm = rsm
        self._deleter = deleter
        self._in_flight = in_flight
        self._quota = quota
        self._counts = counts
        self._progress = progress
        self._broker_id = broker_id
        self._custom_bytes_max = custom_metadata_bytes_max
        self._clock = clock
        self._fs = fs
        self._cancelled = cancelled
        self._partition_count = partition_count

    @property
    def is_read_only(self) -> bool:
        """Whether the store takes nothing from this broker, and that is as it should be."""
        return is_read_only(self._rsm)

    def run(self) -> int:
        """Copy every segment that is due; return how many were copied.

        Stops at the first failure and raises it: RetriableRemoteStorageError when the next turn may do better,
        RemoteStorageError, CorruptRecordError or CorruptIndexError when somebody has to look,
        CustomMetadataSizeLimitExceededError when copying this partition must end.
        """
        log = self._log
        self._progress.note("the metadata of its remote segments")
        copied_through = find_highest_remote_offset(self._rlmm, self._partition, log)
        self._release_local(copied_through)
        from_offset = max(copied_through + 1, log.log_start_offset)
        due = candidates(log.segments, from_offset, log.last_stable_offset, log.config, self._clock.now_ms())
        copied = 0
        for candidate in due:
            if self._cancelled.is_set() or not self._wait_for_quota(candidate.segment.size_bytes):
                break
            self._copy_counted(candidate)
            copied += 1
        return copied

    def _release_local(self, offset: int) -> None:
        """Let local retention have what is remote up to `offset`."""
        log = self._log
        if offset > log.highest_offset_in_remote_storage:
            self._cancelled.unless_set(lambda: log.update_highest_offset_in_remote_storage(offset))

    def _wait_for_quota(self, size: int) -> bool:
        """Wait until the copy quota allows another segment; whether it did before the task was cancelled."""
        self._progress.note(f"{COPY_QUOTA} of {self._quota.bytes_per_second} bytes per second")
        while (throttle_ms := self._quota.acquire(size)) > 0:
            if self._cancelled.wait(min(throttle_ms, _QUOTA_POLL_MS) / 1000):
                return False
        return True

    def _copy_counted(self, candidate: Candidate) -> None:
        counts = self._counts.topic(self._partition.topic)
        counts.copy_requests += 1
        try:
            self._copy(candidate)
        except Exception:
            counts.copy_errors += 1
            raise
        counts.copy_bytes += candidate.segment.size_bytes

    def _copy(self, candidate: Candidate) -> None:
        segment_id = RemoteLogSegmentId.generate_new(self._partition)
        self._in_flight.begin(segment_id)
        try:
            self._copy_as(segment_id, candidate)
        finally:
            self._in_flight.end(segment_id)

    def _copy_as(self, segment_id: RemoteLogSegmentId, candidate: Candidate) -> None:
        segment, end_offset = candidate.segment, candidate.next_base_offset - 1
        ensure_reachable(self._rsm, segment.log_path, segment.size_bytes)
        ensure_owner(self._rsm)
        self._progress.note(f"the check of {segment.log_path.name}")
        checked = check_segment(segment, candidate.next_base_offset, fs=self._fs)
        metadata = self._started(segment_id, candidate, checked.size_bytes)
        self._progress.note(f"the metadata of {segment.log_path.name}")
        _result(self._rlmm.add_remote_log_segment_metadata(metadata))
        self._progress.note(f"the store, which gets {segment.log_path.name} of {segment.size_bytes} bytes")
        try:
            custom = self._rsm.copy_log_segment_data(metadata, self._data(candidate, checked))
            if custom is not None and len(custom.value) > self._custom_bytes_max:
                raise CustomMetadataSizeLimitExceededError(
                    f"{self._partition}: the storage plugin returned {len(custom.value)} bytes of custom metadata, "
                    f"remote.log.metadata.custom.metadata.max.bytes is {self._custom_bytes_max}"
                )
        except Exception as error:
            self._clean_up(metadata, error)
            raise
        self._progress.note(f"the metadata of {segment.log_path.name}")
        _result(self._rlmm.update_remote_log_segment_metadata(self._finished(metadata, custom)))
        self._release_local(end_offset)
        logger.info("Copied %s to the remote tier as %s", segment.log_path.name, segment_id)

    def _started(
        self, segment_id: RemoteLogSegmentId, candidate: Candidate, size_bytes: int
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
            broker_id=self._broker_id,
            event_timestamp_ms=self._clock.now_ms(),
            segment_size_bytes=size_bytes,
            segment_leader_epochs={entry.epoch: entry.start_offset for entry in epochs},
            txn_index_empty=segment.txn_index.is_empty,
        )

    def _data(self, candidate: Candidate, checked: CheckedSegment) -> LogSegmentData:
        segment = candidate.segment
        snapshot = self._log.directory / snapshot_file(candidate.next_base_offset)
        epochs = self._log.leader_epochs.entries_up_to(candidate.next_base_offset)
        return LogSegmentData(
            log_segment=segment.log_path,
            offset_index=segment.offset_index_path,
            time_index=segment.time_index_path,
            transaction_index=segment.txn_index.path if segment.txn_index.exists else None,
            producer_snapshot_index=snapshot if self._fs.exists(snapshot) else None,
            leader_epoch_index=encode_epochs(epochs),
            offset_index_entry_size=segment.offset_index.entry_size,
            on_progress=lambda _: self._progress.advance(),
            block_facts=checked.block_facts,
            topic_config=changed_properties(self._log.config),
            partition_count=self._partition_count(self._partition.topic_id),
        )

    def _finished(
        self, metadata: RemoteLogSegmentMetadata, custom: CustomMetadata | None
    ) -> RemoteLogSegmentMetadataUpdate:
        return RemoteLogSegmentMetadataUpdate(
            metadata.segment_id,
            self._clock.now_ms(),
            custom,
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            self._broker_id,
        )

    def _clean_up(self, metadata: RemoteLogSegmentMetadata, why: Exception) -> None:
        """Remove what a failed copy left, if that is possible now; the expiration task does it later otherwise."""
        if isinstance(why, RetriableRemoteStorageError):
            return  # the store has trouble already
        try:
            self._deleter.delete(metadata)
        except (StratalogError, OSError) as error:
            logger.debug("What is left of %s is cleaned up later: %s", metadata.segment_id, error)


def _result(future: Future[None]) -> None:
    future.result()
