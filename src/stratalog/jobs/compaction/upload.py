"""Stage the new segment of a group of remote segments in the bucket: all its objects except the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from stratalog.log.format import snapshot_file
from stratalog.log.segment import LogSegment
from stratalog.remote.api import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.storage import ObjectKind, ObjectStoreRemoteStorageManager, SegmentManifest
from stratalog.remote.transactions import BULK_BROKER_ID, segment_id
from stratalog.util import SYSTEM_CLOCK, Clock, FileSystem


@dataclass(frozen=True, slots=True)
class Upload:
    """The destination of the new segment, and the segments that it replaces, in order.

    Its id belongs to `job`, and each attempt gets a new one.
    """

    url: str
    options: Mapping[str, str] = field(hash=False, repr=False)
    replaced: tuple[SegmentManifest, ...]
    job: UUID

    @property
    def last(self) -> SegmentManifest:
        return self.replaced[-1]

    def leader_epochs(self) -> dict[int, int]:
        """Return the leader epochs of all replaced segments, each with its first offset."""
        epochs: dict[int, int] = {}
        for manifest in self.replaced:
            for epoch, start in manifest.leader_epochs.items():
                epochs[epoch] = min(start, epochs.get(epoch, start))
        return dict(sorted(epochs.items()))

    def stage(
        self, cleaned: LogSegment, directory: Path, fs: FileSystem, clock: Clock = SYSTEM_CLOCK
    ) -> SegmentManifest:
        """Put the objects of a sealed segment whose files are in `directory`. Raises RemoteStorageError."""
        manager = self._manager()
        try:
            return manager.stage(self._metadata(cleaned, clock), self._data(manager, cleaned, directory, fs))
        finally:
            manager.close()

    def _manager(self) -> ObjectStoreRemoteStorageManager:
        """Return a manager with the encoding of the last segment, if the options have its keys."""
        manager = ObjectStoreRemoteStorageManager()
        manager.configure({"compression": self.last.compression.value, **self.options, "url": self.url})
        return manager

    def _metadata(self, cleaned: LogSegment, clock: Clock) -> RemoteLogSegmentMetadata:
        newest_ms = cleaned.max_timestamp.timestamp_ms
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(self.last.topic_id_partition, segment_id(self.job)),
            start_offset=self.replaced[0].base_offset,
            end_offset=self.last.end_offset,
            max_timestamp_ms=newest_ms if newest_ms >= 0 else self.last.max_timestamp,
            broker_id=BULK_BROKER_ID,
            event_timestamp_ms=clock.now_ms(),
            segment_size_bytes=cleaned.size_bytes,
            segment_leader_epochs=self.leader_epochs(),
            txn_index_empty=cleaned.txn_index.is_empty,
        )

    def _data(
        self, manager: ObjectStoreRemoteStorageManager, cleaned: LogSegment, directory: Path, fs: FileSystem
    ) -> LogSegmentData:
        snapshot: Path | None = None
        if ObjectKind.PRODUCER_SNAPSHOT in self.last.objects:
            snapshot = directory / snapshot_file(self.last.end_offset + 1)
            with fs.open(snapshot, create=True) as file:
                file.write_at(manager.reader.read(self.last, ObjectKind.PRODUCER_SNAPSHOT), 0)
        return LogSegmentData(
            log_segment=cleaned.log_path,
            offset_index=cleaned.offset_index_path,
            time_index=cleaned.time_index_path,
            transaction_index=cleaned.txn_index.path if cleaned.txn_index.exists else None,
            producer_snapshot_index=snapshot,
            leader_epoch_index=manager.reader.read(self.last, ObjectKind.LEADER_EPOCHS),
            offset_index_entry_size=cleaned.offset_index.entry_size,
            topic_config=self.last.topic_config,
            partition_count=self.last.partition_count,
        )
