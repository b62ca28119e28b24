"""The metadata manager that keeps its events in the internal topic `__remote_log_metadata`.

The log is the only truth: an event is appended first and then read back from the log into the caches, so that a restart
sees exactly what the running process saw. Events of a user partition lie in one metadata partition, in order.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Protocol

from stratalog.errors import (
    CorruptRecordError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
    StratalogError,
)
from stratalog.remote.api import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from stratalog.remote.metadata.cache import RemoteLogMetadataCache
from stratalog.remote.metadata.partitioner import metadata_partition
from stratalog.remote.metadata.serde import decode, encode
from stratalog.remote.segment_state import (
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    is_valid_delete_transition,
)
from stratalog.util.clock import SYSTEM_CLOCK, Clock

logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024


class MetadataLog(Protocol):
    """The partitions of the metadata topic as plain logs. Thread-safe."""

    @property
    def partition_count(self) -> int: ...

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        """Store an event durably; return its offset."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """Events from `offset` on as (offset, value), at least one unless at the end."""
        ...

    def end_offset(self, partition: int) -> int:
        """The offset that the next event will get."""
        ...


class _MetadataPartition:
    """One metadata partition: how far it was read, and what was found in it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.next_offset = 0
        #: Whether everything that was stored has been read.
        self.replayed = False
        self.caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
        self.deletes: dict[TopicIdPartition, RemotePartitionDeleteMetadata] = {}


class TopicBasedRemoteLogMetadataManager:
    """See `RemoteLogMetadataManager`. A metadata partition is replayed at the first use of one of its user partitions."""

    def __init__(self, metadata_log: MetadataLog, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._log = metadata_log
        self._clock = clock
        self._partitions = [_MetadataPartition() for _ in range(metadata_log.partition_count)]
        self._closed = False

    def configure(self, configs: Mapping[str, str]) -> None:
        """Nothing to configure: the topic's keys are the broker's business."""

    # --- events -----------------------------------------------------------------------------------------------------

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(
                f"{metadata.segment_id} is added in state {metadata.state.name}, not COPY_SEGMENT_STARTED"
            )
        return self._store(metadata)

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"{update.segment_id} cannot be updated to COPY_SEGMENT_STARTED; add it")
        return self._store(update)

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        return self._store(metadata)

    def _store(self, event: RemoteLogMetadata) -> Future[None]:
        """Append, and read back up to the event. One at a time for each metadata partition."""
        done: Future[None] = Future()
        number = metadata_partition(event.topic_id_partition, len(self._partitions))
        state = self._partitions[number]
        try:
            if self._closed:
                raise RetriableRemoteStorageError("the remote log metadata manager is closed")
            with state.lock:
                self._catch_up(number, state)
                self._check(state, event)
                offset = self._log.append(number, encode(event), self._clock.now_ms())
                self._catch_up(number, state)
                if state.next_offset <= offset:
                    raise RetriableRemoteStorageError(
                        f"event {offset} of metadata partition {number} cannot be read back; the log ends at "
                        f"{state.next_offset}"
                    )
        except (StratalogError, OSError) as error:
            state.replayed = False  # the event may be in the log all the same: the next lookup reads on
            done.set_exception(error)
        else:
            done.set_result(None)
        return done

    def _check(self, state: _MetadataPartition, event: RemoteLogMetadata) -> None:
        """Refuse an update of a segment that is not known, before it is written."""
        if isinstance(event, RemoteLogSegmentMetadataUpdate):
            cache = state.caches.get(event.topic_id_partition)
            if cache is None or cache.get(event.segment_id) is None:
                raise RemoteResourceNotFoundError(f"there is no remote segment {event.segment_id}")

    # --- replay -----------------------------------------------------------------------------------------------------

    def _catch_up(self, number: int, state: _MetadataPartition) -> None:
        """Apply all events up to the end of the log; the caller holds the partition's lock."""
        while state.next_offset < (end := self._log.end_offset(number)):
            events = self._log.read(number, state.next_offset, _READ_BYTES)
            if not events:
                state.next_offset = end  # nothing but gaps and markers
                break
            for offset, value in events:
                self._apply(number, state, offset, value)
                state.next_offset = offset + 1
        state.replayed = True

    def _apply(self, number: int, state: _MetadataPartition, offset: int, value: bytes) -> None:
        try:
            event = decode(value)
        except CorruptRecordError as error:
            logger.error("Event %d of metadata partition %d is skipped: %s", offset, number, error)
            return
        partition = event.topic_id_partition
        if isinstance(event, RemotePartitionDeleteMetadata):
            self._apply_delete(state, event)
            return
        cache = state.caches.setdefault(partition, RemoteLogMetadataCache())
        if isinstance(event, RemoteLogSegmentMetadata):
            cache.add(event)
        else:
            cache.update(event)

    def _apply_delete(self, state: _MetadataPartition, event: RemotePartitionDeleteMetadata) -> None:
        partition = event.topic_id_partition
        known = state.deletes.get(partition)
        if not is_valid_delete_transition(None if known is None else known.state, event.state):
            logger.warning("%s: deletion cannot go to %s; the event is dropped", partition, event.state.name)
            return
        if event.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            state.deletes.pop(partition, None)
            state.caches.pop(partition, None)
        else:
            state.deletes[partition] = event

    # --- lookups ----------------------------------------------------------------------------------------------------

    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """The cache of a partition, with its metadata partition read to the end."""
        number = metadata_partition(partition, len(self._partitions))
        state = self._partitions[number]
        if state.replayed and (known := state.caches.get(partition)) is not None:
            return known  # without the lock: an event may just be on its way to the disk
        with state.lock:
            if not state.replayed:
                self._catch_up(number, state)
            return state.caches.setdefault(partition, RemoteLogMetadataCache())

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

    def unfinished_partition_deletes(self) -> list[TopicIdPartition]:
        """Partitions whose deletion was begun and not finished; reads every metadata partition to its end."""
        found: list[TopicIdPartition] = []
        for number, state in enumerate(self._partitions):
            with state.lock:
                if not state.replayed:
                    self._catch_up(number, state)
                found += state.deletes
        return sorted(found)

    # --- life -------------------------------------------------------------------------------------------------------

    def on_partition_leadership_changes(
        self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]
    ) -> None:
        """Nothing to do: what is asked for is read."""

    def on_stop_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Nothing to do: what was read stays, and a partition may come back."""

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self._partitions[metadata_partition(partition, len(self._partitions))].replayed

    def close(self) -> None:
        self._closed = True
