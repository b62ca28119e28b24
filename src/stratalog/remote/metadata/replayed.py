"""One partition of `__remote_log_metadata`, replayed: the offset read so far, and the state of its events.

A snapshot saves the replay of events below its offset. It is used only if it is valid and the log still begins with the
same events; otherwise everything is replayed, and a log message says why.
"""

from __future__ import annotations

import logging
import threading

from stratalog.errors import CorruptRecordError, CorruptSnapshotError, RetriableRemoteStorageError, StratalogError
from stratalog.remote.api import (
    RemoteLogMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    is_valid_delete_transition,
)
from stratalog.remote.metadata.cache import RemoteLogMetadataCache
from stratalog.remote.metadata.log import FollowsLeaders, MetadataLog
from stratalog.remote.metadata.serde import decode
from stratalog.remote.metadata.snapshot import (
    Covers,
    MetadataSnapshot,
    PartitionContent,
    decode_snapshot,
    encode_snapshot,
)
from stratalog.util import crc32c

logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024

#: A snapshot is due after this many events since the last one, or as many as there are segments.
SNAPSHOT_EVERY_EVENTS = 2_000


class ReplayedPartition:
    """The state of one metadata partition. Hold `lock` to change it, or to read more than one attribute."""

    def __init__(self, log: MetadataLog, number: int) -> None:
        self.lock = threading.RLock()
        self.caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
        self.deletes: dict[TopicIdPartition, RemotePartitionDeleteMetadata] = {}
        #: Whether all stored events have been read.
        self.is_current = False
        #: Whether an event is being stored: the log may then end after what was read, and nothing is missing.
        self.is_appending = False
        self.next_offset = 0
        self.number = number
        self._log = log
        self._is_loaded = False
        self._start_offset = 0
        self._last_event = -1, 0  # its offset, and the CRC-32C of its value
        self._events_since_snapshot = 0

    def catch_up(self) -> None:
        """Apply all events up to the end of the log.

        Raises RetriableRemoteStorageError while too few have been read to answer lookups.
        """
        if not self._is_loaded:
            self._load()
        while self.next_offset < self._log.end_offset(self.number):
            events, next_offset = self._log.read(self.number, self.next_offset, _READ_BYTES)
            if next_offset <= self.next_offset:
                break  # later events are not visible yet
            for offset, value in events:
                self._apply(offset, value)
            if events:
                self._last_event = events[-1][0], crc32c(events[-1][1])
            self.next_offset = next_offset
            self._events_since_snapshot += len(events)
        if isinstance(self._log, FollowsLeaders) and self.next_offset < (end := self._log.first_end(self.number)):
            raise RetriableRemoteStorageError(
                f"partition {self.number} of the remote log metadata has been read up to {self.next_offset} of {end}"
            )
        self.is_current = True

    def _apply(self, offset: int, value: bytes) -> None:
        try:
            event = decode(value)
        except CorruptRecordError as error:
            logger.error("Event %d of metadata partition %d is skipped: %s", offset, self.number, error)
            return
        if isinstance(event, RemotePartitionDeleteMetadata):
            self._apply_delete(event)
            return
        cache = self.cache(event.topic_id_partition)
        if isinstance(event, RemoteLogSegmentMetadata):
            cache.add(event)
        else:
            cache.update(event)

    def _apply_delete(self, event: RemotePartitionDeleteMetadata) -> None:
        partition = event.topic_id_partition
        known = self.deletes.get(partition)
        if not is_valid_delete_transition(None if known is None else known.state, event.state):
            logger.warning("%s: deletion cannot go to %s; the event is dropped", partition, event.state.name)
            return
        if event.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
            self.deletes.pop(partition, None)
            self.caches.pop(partition, None)
        else:
            self.deletes[partition] = event

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """Return the state of a user partition so far."""
        found = self.caches.get(partition)
        if found is None:
            found = self.caches[partition] = RemoteLogMetadataCache()
        return found

    def missing_segment(self, event: RemoteLogMetadata) -> RemoteLogSegmentId | None:
        """Return the segment that an event changes, if it was never added or is deleted."""
        if not isinstance(event, RemoteLogSegmentMetadataUpdate):
            return None
        cache = self.caches.get(event.topic_id_partition)
        return event.segment_id if cache is None or cache.get(event.segment_id) is None else None

    def _load(self) -> None:
        """Load the snapshot, if it matches the beginning of this log."""
        self._start_offset = self._log.start_offset(self.number)
        try:
            data = self._log.read_snapshot(self.number)
            if data is not None:
                snapshot = decode_snapshot(data)
                self._check(snapshot.covers)
                self._begin_with(snapshot)
        except (CorruptSnapshotError, OSError) as error:
            logger.warning(
                "The snapshot of metadata partition %d is not used, all its events are replayed: %s", self.number, error
            )
        self._is_loaded = True

    def _check(self, covers: Covers) -> None:
        """Raise CorruptSnapshotError unless the log begins with the events of the snapshot."""
        end = self._log.end_offset(self.number)
        if covers.log_start_offset != self._start_offset:
            raise CorruptSnapshotError(
                f"it begins at offset {covers.log_start_offset}, the log at {self._start_offset}"
            )
        if not covers.log_start_offset <= covers.next_offset <= end:
            raise CorruptSnapshotError(f"it goes up to offset {covers.next_offset}, the log ends at {end}")
        if covers.last_event_offset >= 0:
            try:
                events, next_offset = self._log.read(self.number, covers.last_event_offset, 1)
            except CorruptRecordError as error:
                logger.warning("The snapshot of metadata partition %d is used, the event it ends with is damaged: %s",
                               self.number, error)  # fmt: skip
                return
            if next_offset > covers.last_event_offset and (not events or events[0][0] > covers.last_event_offset):
                return  # skipped as damaged, with a log message: only the snapshot has it
            if not events or (events[0][0], crc32c(events[0][1])) != covers.last_event:
                raise CorruptSnapshotError(f"event {covers.last_event_offset} of the log differs")

    def _begin_with(self, snapshot: MetadataSnapshot) -> None:
        try:
            caches = {
                partition: RemoteLogMetadataCache.of(content.cache.segments, content.cache.highest_offsets)
                for partition, content in snapshot.partitions.items()
            }
        except ValueError as error:
            raise CorruptSnapshotError(str(error)) from error
        self.caches = caches
        self.deletes = {
            partition: content.deletion
            for partition, content in snapshot.partitions.items()
            if content.deletion is not None
        }
        self.next_offset = snapshot.covers.next_offset
        self._last_event = snapshot.covers.last_event

    def snapshot_if_due(self) -> None:
        """Write a snapshot after enough events that its cost does not matter."""
        segments = sum(len(cache) for cache in self.caches.values())
        if self._events_since_snapshot >= max(SNAPSHOT_EVERY_EVENTS, segments):
            self.write_snapshot()

    def write_snapshot(self) -> None:
        """Write a snapshot if there are new events.

        A disk error is logged, and the next replay takes longer.
        """
        if not self._events_since_snapshot:
            return
        covers = Covers(self._start_offset, self.next_offset, *self._last_event)
        names = {**self.caches, **self.deletes}
        content = {
            partition: PartitionContent(self.cache(partition).content(), self.deletes.get(partition))
            for partition in names
        }
        try:
            if self._log.start_offset(self.number) == self._start_offset:
                self._log.write_snapshot(self.number, encode_snapshot(MetadataSnapshot(covers, content)))
        except (StratalogError, OSError) as error:
            logger.warning("Cannot write a snapshot of metadata partition %d: %s", self.number, error)
        self._events_since_snapshot = 0
