"""The two plugin interfaces of the remote tier and their values (KIP-405).

`RemoteStorageManager` moves bytes and may be eventually consistent. `RemoteLogMetadataManager` knows which segment
covers which offsets and is strongly consistent. The metadata, not a bucket listing, define what exists remotely: they
are written before and after every operation on data.

Offsets are inclusive at both ends of a segment. Positions are byte ranges [start, end). Times are milliseconds. Sizes
and positions are plain ints and may exceed 2^31.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from uuid import UUID

from typing_extensions import Buffer

from stratalog.remote.api.segment_state import RemoteLogSegmentState, RemotePartitionDeleteState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.util import random_uuid, uuid_to_base64

if TYPE_CHECKING:
    from stratalog.remote.storage import BlockFacts

NO_TIMESTAMP = -1

#: The largest size in Kafka's int32 field; see `metadata.serde` for larger ones.
INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """Unique id of one attempt to copy one segment."""

    topic_id_partition: TopicIdPartition
    id: UUID

    @classmethod
    def generate_new(cls, topic_id_partition: TopicIdPartition) -> RemoteLogSegmentId:
        """Return a new id.

        Every attempt gets its own, so a repeated copy never meets objects of an earlier one.
        """
        return cls(topic_id_partition, random_uuid())

    def __str__(self) -> str:
        return f"{self.topic_id_partition}/{uuid_to_base64(self.id)}"


@dataclass(frozen=True, slots=True)
class CustomMetadata:
    """Opaque bytes that a storage plugin keeps with a segment. Configuration bounds their size."""

    value: bytes


class IndexType(Enum):
    """Kinds of data stored beside the records of a segment."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producer-snapshot"
    TRANSACTION = "transaction"
    LEADER_EPOCH = "leader-epoch"


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """Metadata of one remote segment. Immutable; `with_update` returns the next version.

    `segment_leader_epochs` maps each leader epoch of the segment to its first offset there, ascending, and is never
    empty. `segment_size_bytes` is the true size of the records, also beyond 2^31 - 1.

    Raises ValueError when start_offset < 0, end_offset < start_offset, the size is negative, or the epochs are empty,
    not ascending or not within the segment.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    segment_leader_epochs: Mapping[int, int] = field(hash=False)
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED
    custom_metadata: CustomMetadata | None = None
    txn_index_empty: bool = False

    def __post_init__(self) -> None:
        epochs = dict(self.segment_leader_epochs)
        if len(epochs) > 1:
            epochs = dict(sorted(epochs.items()))
        object.__setattr__(self, "segment_leader_epochs", epochs)
        wrong = self._what_is_wrong()
        if wrong is not None:
            raise ValueError(f"{self.segment_id}: {wrong}")

    def _what_is_wrong(self) -> str | None:
        start, end, epochs = self.start_offset, self.end_offset, self.segment_leader_epochs
        if start < 0:
            return f"start offset {start} is negative"
        if end < start:
            return f"end offset {end} is before start offset {start}"
        if self.segment_size_bytes < 0:
            return f"segment size {self.segment_size_bytes} is negative"
        if not epochs:
            return "a segment has at least one leader epoch"
        starts = list(epochs.values())
        if starts[-1] > end or (len(starts) > 1 and starts != sorted(starts)):
            return f"leader epochs {dict(epochs)} do not ascend within offsets {start} to {end}"
        return None

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.segment_id.topic_id_partition

    @property
    def is_readable(self) -> bool:
        return self.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED

    @property
    def last_epoch(self) -> int:
        return max(self.segment_leader_epochs)

    def with_update(self, update: RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentMetadata:
        """Return the segment with the update's broker, time, custom metadata and state."""
        if update.segment_id != self.segment_id:
            raise ValueError(f"an update of {update.segment_id} cannot be applied to {self.segment_id}")
        return RemoteLogSegmentMetadata(  # explicit fields, faster than `replace`: replays do this for every event
            segment_id=self.segment_id,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            max_timestamp_ms=self.max_timestamp_ms,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            segment_size_bytes=self.segment_size_bytes,
            segment_leader_epochs=self.segment_leader_epochs,
            state=update.state,
            custom_metadata=update.custom_metadata,
            txn_index_empty=self.txn_index_empty,
        )


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """A change of state of a segment that was added earlier."""

    segment_id: RemoteLogSegmentId
    event_timestamp_ms: int
    custom_metadata: CustomMetadata | None
    state: RemoteLogSegmentState
    broker_id: int

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.segment_id.topic_id_partition


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    topic_id_partition: TopicIdPartition
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int


RemoteLogMetadata = RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The data of one segment to copy: files, and the leader epochs up to its end as a checkpoint file.

    `producer_snapshot_index` is the snapshot at the base offset of the next segment. `offset_index_entry_size` is 8 or
    12, or None if unknown. `topic_config` has the topic's values that differ from Kafka's defaults, `partition_count`
    the number of partitions; both may be None for unknown. `on_progress` may be called with the bytes of a file sent so
    far: without it, a long copy seems to hang. `block_facts` has what the caller knows of each MiB of the records from
    reading them.
    """

    log_segment: Path
    offset_index: Path
    time_index: Path
    transaction_index: Path | None
    producer_snapshot_index: Path | None
    leader_epoch_index: bytes
    offset_index_entry_size: int | None = None
    topic_config: Mapping[str, str] | None = None
    on_progress: Callable[[int], None] | None = None
    block_facts: BlockFacts | None = None
    partition_count: int | None = None


@runtime_checkable
class RemoteStorageManager(Protocol):
    """Moves the bytes of segments. Thread-safe.

    Copying again overwrites; deleting a missing object is no error. A method may block, but not for ever. It raises
    RetriableRemoteStorageError for transient failures (the caller tries again on its next run),
    RemoteResourceNotFoundError for a missing object, RemoteStorageError for all others.

    Positions and sizes are unbounded. A plugin with a bound declares it as the attribute `position_max` and is never
    asked for more; `stratalog.remote.api.plugin` has this and other optional parts.

    Plugins loaded by name are created without arguments and then configured with the keys under their prefix, without
    it.
    """

    def configure(self, configs: Mapping[str, str]) -> None: ...

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        """Store records and indexes under `metadata.segment_id`. Return once they are durable."""
        ...

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Buffer:
        """Return bytes [start_position, end_position) of the records. Fewer only at the end of the segment."""
        ...

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return a whole index. RemoteResourceNotFoundError when the segment has none of this type."""
        ...

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete everything stored under `metadata.segment_id`."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class RemoteLogMetadataManager(Protocol):
    """Knows which remote segments exist. Thread-safe and strongly consistent.

    A mutator returns at once. Its future completes when the event is durable and visible to every lookup, or fails with
    a StratalogError. Lookups of a partition that is not ready raise RetriableRemoteStorageError.
    """

    def configure(self, configs: Mapping[str, str]) -> None: ...

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        """Add a segment in state COPY_SEGMENT_STARTED (else ValueError)."""
        ...

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        """Move a segment to another state, which must not be COPY_SEGMENT_STARTED (else ValueError)."""
        ...

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Future[None]: ...

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment that holds `offset` within `leader_epoch`."""
        ...

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        """Return the last offset of `leader_epoch` in any segment whose copy has finished."""
        ...

    def list_remote_log_segments(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        """Return segments in all states before DELETE_SEGMENT_FINISHED. Those of one epoch ascend by start offset."""
        ...

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        """Return the bytes of the segments of an epoch."""
        ...

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment with aborted transactions at `offset`, or the first after it in the epoch."""
        ...

    def on_partition_leadership_changes(
        self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]
    ) -> None: ...

    def on_stop_partitions(self, partitions: Iterable[TopicIdPartition]) -> None: ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Return whether all stored events of the partition have been read. Its tasks skip their turns until then."""
        ...

    def close(self) -> None: ...
