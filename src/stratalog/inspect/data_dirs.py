"""Read what log directories say of tiered partitions, from files alone: nothing is opened, locked or changed.

`__remote_log_metadata` is replayed one of its partitions at a time, so that only those events are in memory. A
broker may be running; what it writes during the audit may be missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from stratalog.errors import CorruptCheckpointError, CorruptRecordError
from stratalog.inspect.facts import LogFacts, PartitionMetadata
from stratalog.inspect.local import read_local_segment
from stratalog.inspect.replicas import one_replica
from stratalog.log import SegmentFiles, list_partitions, list_segments
from stratalog.log.format import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSETS,
    OffsetCheckpoint,
    decode_epochs,
    noted_topic_id,
)
from stratalog.records import Damage, RecordBatch, walk
from stratalog.remote.api import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    is_valid_delete_transition,
    is_valid_transition,
    lineage_of,
)
from stratalog.remote.metadata import decode
from stratalog.util import REAL_FILESYSTEM, File, FileSystem

METADATA_TOPIC = "__remote_log_metadata"

_READ_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class _Replayed:
    """The events applied so far to one user partition."""

    segments: dict[UUID, RemoteLogSegmentMetadata] = field(default_factory=dict)
    deleted: set[UUID] = field(default_factory=set)
    delete_state: RemotePartitionDeleteState | None = None

    def apply(self, event: RemoteLogMetadata) -> None:
        """Apply it as the broker's cache does: what the states do not allow changes nothing."""
        if isinstance(event, RemotePartitionDeleteMetadata):
            if is_valid_delete_transition(self.delete_state, event.state):
                self.delete_state = event.state
                if event.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
                    self.deleted |= self.segments.keys()
                    self.segments.clear()
            return
        segment_id = event.segment_id.id
        if segment_id in self.deleted:
            return
        known = self.segments.get(segment_id)
        if not is_valid_transition(None if known is None else known.state, event.state):
            return
        if isinstance(event, RemoteLogSegmentMetadata):
            self.segments[segment_id] = event
        elif event.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            del self.segments[segment_id]
            self.deleted.add(segment_id)
        elif known is not None:
            self.segments[segment_id] = known.with_update(event)


class DataDirSet:
    """Log directories of a broker, or of several: one replica stands for a partition. Not thread-safe."""

    def __init__(self, directories: Sequence[Path], fs: FileSystem = REAL_FILESYSTEM) -> None:
        self._fs = fs
        self._directories = tuple(directories)
        self._paths: dict[tuple[str, int], list[Path]] = {}
        for directory in directories:
            for topic, partition, path in list_partitions(directory, fs):
                self._paths.setdefault((topic, partition), []).append(path)
        self._metadata = {
            number: one_replica(topic, number, paths, fs)
            for (topic, number), paths in self._paths.items()
            if topic == METADATA_TOPIC
        }

    @property
    def has_metadata(self) -> bool:
        return bool(self._metadata)

    @property
    def metadata_is_complete(self) -> bool:
        """Return whether all its partitions seem to be here: from 0 up to the largest."""
        return sorted(self._metadata) == list(range(len(self._metadata)))

    def replay(self) -> Iterator[dict[TopicIdPartition, PartitionMetadata]]:
        """For each metadata partition what it says of the partitions that it mentions."""
        for _, path in sorted(self._metadata.items()):
            yield self._replay(path)

    def _replay(self, path: Path) -> dict[TopicIdPartition, PartitionMetadata]:
        found: dict[TopicIdPartition, _Replayed] = {}
        segments = list_segments(path, self._fs)
        is_complete = bool(segments) and segments[0].base_offset == 0
        for event in self._events(segments):
            if event is None:
                is_complete = False
            else:
                found.setdefault(event.topic_id_partition, _Replayed()).apply(event)
        return {
            partition: PartitionMetadata(
                replayed.segments, frozenset(replayed.deleted), replayed.delete_state, is_complete
            )
            for partition, replayed in found.items()
        }

    def _events(self, segments: Sequence[SegmentFiles]) -> Iterator[RemoteLogMetadata | None]:
        """Yield the events in order, or None for what cannot be read."""
        for segment in segments:
            with self._fs.open(segment.log) as file:
                for batch in _batches(file, segment.size):
                    if batch is None or not batch.is_crc_valid:
                        yield None
                    elif not batch.is_control:
                        yield from (_event(record.value) for record in batch.records())

    def log_facts(self, partition: TopicIdPartition) -> LogFacts | None:
        """Return what the partition's directory says, or None when it is not there, of another topic id, or damaged."""
        key = partition.topic, partition.partition
        paths = [each for each in self._paths.get(key, []) if noted_topic_id(each, self._fs) == partition.topic_id]
        if not paths:
            return None
        path = one_replica(*key, paths, self._fs)
        try:
            checkpoint = path / LEADER_EPOCH_CHECKPOINT
            epochs = decode_epochs(self._fs.read_bytes(checkpoint)) if self._fs.exists(checkpoint) else []
            starts = OffsetCheckpoint(path.parent / LOG_START_OFFSETS, self._fs).read()
        except (CorruptCheckpointError, FileNotFoundError):
            return None
        segments = list_segments(path, self._fs)
        if not segments:
            return None
        local_start = segments[0].base_offset
        log_start = starts.get(key)
        return LogFacts(
            log_start,
            local_start if log_start is None else max(local_start, log_start),
            read_local_segment(segments[-1], self._fs).end_offset,
            lineage_of(epochs),
        )


def _batches(file: File, size: int) -> Iterator[RecordBatch | None]:
    """Yield the batches of a file. For bytes that are not a batch, yield None and stop.

    One that is not whole is being written.
    """
    damage: list[Damage] = []
    for _, batch in walk(file.pread, size, on_damage=damage.append, window_size=_READ_BYTES):
        yield batch
    if damage and not damage[0].is_cut:
        yield None


def _event(value: memoryview | bytes | None) -> RemoteLogMetadata | None:
    if value is None:
        return None
    try:
        return decode(bytes(value))
    except CorruptRecordError:
        return None
