"""Read and write the metadata of remote segments in `__remote_log_metadata`, through a broker of Kafka or ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol
from uuid import UUID

from stratalog.errors import RemoteResourceNotFoundError, UnknownTopicOrPartitionError, UsageError
from stratalog.records import Record, build_batch, iter_batches
from stratalog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from stratalog.remote.metadata import (
    EventsRead,
    MetadataLog,
    TopicBasedRemoteLogMetadataManager,
    encode,
    epoch_end_offset,
    metadata_partition,
)
from stratalog.remote.storage import SegmentManifest
from stratalog.remote.transactions import BULK_BROKER_ID
from stratalog.util import SYSTEM_CLOCK, Clock
from stratalog.wire import ApiKey
from stratalog.wire.client import EARLIEST_OFFSET, LATEST_OFFSET, Cluster, ConnectionOptions, check

TOPIC: Final = "__remote_log_metadata"

#: By topic name, with batches of format 2.
_PRODUCE_VERSIONS: Final = (3, 12)
_ALL_REPLICAS: Final = -1


class BrokerMetadataLog:
    """The metadata topic of a cluster as a metadata manager's log (`remote.metadata.log.MetadataLog`)."""

    def __init__(self, cluster: Cluster) -> None:
        """Raise UsageError when the cluster has no such topic: nothing is tiered there."""
        self._cluster = cluster
        try:
            self.partition_count = len(cluster.topic(TOPIC).partitions)
        except UnknownTopicOrPartitionError as error:
            raise UsageError(f"the cluster has no topic {TOPIC}: it has no tiered topics") from error

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        return self.append_all(partition, [value], timestamp_ms)

    def append_all(self, partition: int, values: Sequence[bytes], timestamp_ms: int) -> int:
        """Store events in one batch, all or none, on all in-sync replicas. Return the offset of the first."""
        batch = build_batch([Record(n, timestamp_ms, None, value) for n, value in enumerate(values)])

        def produce() -> int:
            answer = self._cluster.leader(TOPIC, partition).call(
                ApiKey.PRODUCE,
                _PRODUCE_VERSIONS,
                acks=_ALL_REPLICAS,
                timeout_ms=int(self._cluster.options.request_timeout_s * 1000),
                topic_data=[{"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}],
            )
            (said,) = answer.responses[0].partition_responses
            check(said.error_code, getattr(said, "error_message", None), f"{TOPIC}-{partition}")
            return int(said.base_offset)

        return self._cluster.retry(produce, f"{TOPIC}-{partition}", [TOPIC])

    def read(self, partition: int, offset: int, max_bytes: int) -> EventsRead:
        fetched = self._cluster.fetch(TOPIC, partition, offset, max_bytes, max_wait_ms=100)
        events: list[tuple[int, bytes]] = []
        next_offset = offset
        for batch in iter_batches(fetched.records):
            batch.ensure_valid()
            next_offset = batch.next_offset
            if not batch.is_control:
                events += [
                    (record.offset, bytes(record.value))
                    for record in batch.records()
                    if record.value is not None and record.offset >= offset
                ]
        return EventsRead(events, next_offset)

    def start_offset(self, partition: int) -> int:
        return self._offset(partition, EARLIEST_OFFSET)

    def end_offset(self, partition: int) -> int:
        return self._offset(partition, LATEST_OFFSET)

    def _offset(self, partition: int, which: int) -> int:
        return self._cluster.list_offsets({(TOPIC, partition): which})[TOPIC, partition].offset

    def read_snapshot(self, partition: int) -> bytes | None:  # noqa: ARG002
        """Return None: snapshots belong to the broker."""
        return None

    def write_snapshot(self, partition: int, data: bytes) -> None:
        """Do nothing: snapshots belong to the broker."""


class EventLog(MetadataLog, Protocol):
    """A metadata log that takes several events at once."""

    def append_all(self, partition: int, values: Sequence[bytes], timestamp_ms: int) -> int: ...


#: Returns the end offset of a leader epoch according to the partition's leader, -1 if it does not know the epoch.
EpochEnd = Callable[[TopicIdPartition, int], int]


class TieredCluster:
    """The remote segments of a cluster according to its metadata topic. Not thread-safe."""

    def __init__(
        self,
        log: EventLog,
        clock: Clock = SYSTEM_CLOCK,
        *,
        cluster_id: str | None = None,
        epoch_end: EpochEnd | None = None,
    ) -> None:
        self._log = log
        #: The owner of the bucket, if any.
        self.cluster_id = cluster_id
        self._epoch_end = epoch_end
        self._manager = TopicBasedRemoteLogMetadataManager(log, clock=clock)
        self._clock = clock

    @classmethod
    @contextmanager
    def connected(cls, options: ConnectionOptions, clock: Clock = SYSTEM_CLOCK) -> Iterator[TieredCluster]:
        """Yield a cluster that is connected. Raises UnreachableError, AuthenticationError or UsageError."""
        with Cluster(options) as cluster:
            yield cls(
                BrokerMetadataLog(cluster),
                clock,
                cluster_id=cluster.cluster_id(),
                epoch_end=lambda of, epoch: cluster.epoch_end_offset(of.topic, of.partition, epoch),
            )

    def segments(self, partition: TopicIdPartition) -> dict[UUID, RemoteLogSegmentMetadata]:
        """Return all known segments of a partition, by id, in any state."""
        return {each.segment_id.id: each for each in self._manager.list_remote_log_segments(partition)}

    def of_the_log(self, manifests: Sequence[SegmentManifest]) -> list[SegmentManifest]:
        """Return the segments of one partition that agree with the leader's log up to their end.

        Others belong to an abandoned lineage, for example after the end of a log was lost. Their values are not newer,
        and a segment made of both lineages would belong to the wrong one as a whole.
        """
        if self._epoch_end is None:
            return list(manifests)
        ends: dict[int, int] = {}
        found = []
        for manifest in manifests:
            metadata = manifest.metadata()
            for epoch in metadata.segment_leader_epochs:
                if epoch not in ends:
                    ends[epoch] = self._epoch_end(manifest.topic_id_partition, epoch)
            if all(epoch_end_offset(metadata, epoch) < ends[epoch] for epoch in metadata.segment_leader_epochs):
                found.append(manifest)
        return found

    def announce(self, partition: TopicIdPartition, new: Iterable[SegmentManifest]) -> None:
        """Announce segments whose objects and manifests are in the bucket: started and finished, in one batch."""
        events: list[bytes] = []
        for manifest in new:
            finished = manifest.metadata()
            now_ms = self._clock.now_ms()
            events += [
                encode(_started(finished, now_ms)),
                encode(_update(finished, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, now_ms)),
            ]
        if events:
            number = metadata_partition(partition, self._log.partition_count)
            self._log.append_all(number, events, self._clock.now_ms())

    def to(self, state: RemoteLogSegmentState, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Move segments to another state. Skips those that a broker has deleted. StratalogError."""
        for segment in segments:
            update = _update(segment, state, self._clock.now_ms())
            with suppress(RemoteResourceNotFoundError):
                self._manager.update_remote_log_segment_metadata(update).result()


def _started(finished: RemoteLogSegmentMetadata, now_ms: int) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=finished.segment_id,
        start_offset=finished.start_offset,
        end_offset=finished.end_offset,
        max_timestamp_ms=finished.max_timestamp_ms,
        broker_id=BULK_BROKER_ID,
        event_timestamp_ms=now_ms,
        segment_size_bytes=finished.segment_size_bytes,
        segment_leader_epochs=finished.segment_leader_epochs,
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=finished.txn_index_empty,
    )


def _update(
    segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, now_ms: int
) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(segment.segment_id, now_ms, segment.custom_metadata, state, BULK_BROKER_ID)
