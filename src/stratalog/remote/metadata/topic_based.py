"""The metadata manager that keeps its events in the internal topic `__remote_log_metadata`.

The log is the only source of truth: an event is appended and then read back from the log into the caches, so a restart
restores exactly the state of the running process. Events of a user partition are in one metadata partition, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from stratalog.errors import RemoteResourceNotFoundError, RetriableRemoteStorageError, StratalogError
from stratalog.remote.api import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from stratalog.remote.metadata.cache import RemoteLogMetadataCache
from stratalog.remote.metadata.log import FollowsLeaders, MetadataLog
from stratalog.remote.metadata.partitioner import metadata_partition
from stratalog.remote.metadata.replayed import ReplayedPartition
from stratalog.remote.metadata.serde import encode
from stratalog.remote.tier import RemoteTotals
from stratalog.util import SYSTEM_CLOCK, Clock

logger = logging.getLogger(__name__)

#: Delay between attempts to read back an event.
_POLL_SECONDS: Final = 0.01


class TopicBasedRemoteLogMetadataManager:
    """A `RemoteLogMetadataManager` that replays a metadata partition at the first use of one of its user partitions.

    A mutator's future completes when the event can be read back, and fails if that takes longer than `consume_wait_ms`.
    Snapshots are written as events come, after a long replay and on close.
    """

    def __init__(
        self, metadata_log: MetadataLog, *, consume_wait_ms: int = 120_000, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._log = metadata_log
        self._consume_wait_ms = consume_wait_ms
        self._clock = clock
        self._partitions = [ReplayedPartition(metadata_log, number) for number in range(metadata_log.partition_count)]
        self._closed = False
        #: Partitions with a new leader: they are ready after reading all that earlier leaders stored.
        self._unsure: dict[TopicIdPartition, object] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        """Do nothing: the broker configures the topic."""

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"{metadata.segment_id} is added in state {metadata.state.name}, not COPY_SEGMENT_STARTED")
        return self._store(metadata)

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"{update.segment_id} cannot be updated to COPY_SEGMENT_STARTED; add it")
        return self._store(update)

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        return self._store(metadata)

    def _store(self, event: RemoteLogMetadata) -> Future[None]:
        """Append an event and read it back. One at a time for each metadata partition."""
        done: Future[None] = Future()
        number = metadata_partition(event.topic_id_partition, len(self._partitions))
        replayed = self._partitions[number]
        try:
            with replayed.lock:
                if self._closed:
                    raise RetriableRemoteStorageError("the remote log metadata manager is closed")
                replayed.catch_up()
                missing = replayed.missing_segment(event)
                if missing is not None:  # refused before it is written
                    raise RemoteResourceNotFoundError(f"there is no remote segment {missing}")
                replayed.is_appending = True
                try:
                    offset = self._log.append(number, encode(event), self._clock.now_ms())
                    self._await(replayed, number, offset)
                finally:
                    replayed.is_appending = False
                replayed.snapshot_if_due()
        except (StratalogError, OSError) as error:
            replayed.is_current = False  # the event may be in the log all the same: the next lookup reads it
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def _await(self, replayed: ReplayedPartition, number: int, offset: int) -> None:
        """Read until the event at `offset` is applied. RetriableRemoteStorageError on timeout."""
        deadline = self._clock.monotonic() + self._consume_wait_ms / 1000
        replayed.catch_up()
        while replayed.next_offset <= offset:
            if self._clock.monotonic() >= deadline:
                raise RetriableRemoteStorageError(
                    f"event {offset} of metadata partition {number} could not be read back within "
                    f"remote.log.metadata.consume.wait.ms={self._consume_wait_ms}; the log ends at "
                    f"{replayed.next_offset}"
                )
            self._clock.sleep(_POLL_SECONDS)
            replayed.catch_up()

    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """Return the cache of a partition after reading its metadata partition to the end."""
        replayed = self._partitions[metadata_partition(partition, len(self._partitions))]
        if self._is_current(replayed) and (known := replayed.caches.get(partition)) is not None:
            return known  # without the lock: an event may be on its way to the disk
        with replayed.lock:
            self._make_current(replayed)
            return replayed.cache(partition)

    def _is_current(self, replayed: ReplayedPartition) -> bool:
        """Return whether everything is read except for an event being appended here. Others may append too."""
        if not replayed.is_current:
            return False
        return replayed.is_appending or replayed.next_offset >= self._log.end_offset(replayed.number)

    def _make_current(self, replayed: ReplayedPartition) -> None:
        if not self._is_current(replayed):
            replayed.catch_up()
            replayed.snapshot_if_due()

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._cache(partition).segment_for(leader_epoch, offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        return self._cache(partition).highest_offset_for_epoch(leader_epoch)

    def list_remote_log_segments(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        return self._cache(partition).segments(leader_epoch)

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        return sum(segment.segment_size_bytes for segment in self._cache(partition).segments(leader_epoch))

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._cache(partition).next_segment_with_txn_index(leader_epoch, offset)

    def totals(self, partition: TopicIdPartition) -> RemoteTotals:
        """Return the totals, see `remote.true_sizes.KeepsTotals`."""
        return self._cache(partition).totals()

    def metadata_version(self, partition: TopicIdPartition) -> int:
        """Return the version, see `remote.true_sizes.KeepsVersions`."""
        return self._cache(partition).version

    def unfinished_partition_deletes(self) -> list[TopicIdPartition]:
        """Return partitions with an unfinished deletion. Reads every metadata partition to its end."""
        return sorted(each for number in range(len(self._partitions)) for each in self.unfinished_deletes_in(number))

    def unfinished_deletes_in(self, number: int) -> list[TopicIdPartition]:
        """Return those with events in one metadata partition, after reading it to its end."""
        replayed = self._partitions[number]
        end = self._log.newest_end(number) if isinstance(self._log, FollowsLeaders) else 0
        with replayed.lock:
            self._make_current(replayed)
            if replayed.next_offset < end:
                raise RetriableRemoteStorageError(f"partition {number} of the remote log metadata is being read")
            return sorted(replayed.deletes)

    def on_partition_leadership_changes(
        self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]
    ) -> None:
        """Record that other brokers may have stored events of these partitions."""
        if isinstance(self._log, FollowsLeaders):
            for partition in (*leaders, *followers):
                self._unsure[partition] = object()

    def on_stop_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Do nothing: a partition may come back."""
        for partition in partitions:
            self._unsure.pop(partition, None)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Return whether all events from before the last change of leadership have been read.

        Reads the rest first. Raises the errors of a lookup.
        """
        number = metadata_partition(partition, len(self._partitions))
        replayed, unsure = self._partitions[number], self._unsure.get(partition)
        if not isinstance(self._log, FollowsLeaders):
            with replayed.lock:
                self._make_current(replayed)
            return True
        try:
            end = 0 if unsure is None else self._log.newest_end(number)
            with replayed.lock:
                self._make_current(replayed)
        except RetriableRemoteStorageError as error:
            logger.debug("%s: %s", partition, error)
            return False
        if replayed.next_offset < end:
            return False
        if self._unsure.get(partition) is unsure:
            self._unsure.pop(partition, None)
        return True

    def close(self) -> None:
        """Write snapshots, so that the next start has nothing to replay. A second call does nothing."""
        if isinstance(self._log, FollowsLeaders):
            self._log.close()  # first: an event that waits for a broker holds a lock
        for replayed in self._partitions:
            with replayed.lock:
                if not self._closed:
                    replayed.write_snapshot()
        self._closed = True
