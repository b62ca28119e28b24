"""One partition for benchmarks of the remote tier: filled, rolled, copied to a store, read through a manager."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.metadata.log import EventsRead
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.tier.log_view import topic_id_partition
from stratalog.remote.tier.manager import RemoteLogManager
from stratalog.util.uuids import random_uuid

SEGMENT_BYTES = 64 * 1024 * 1024
RECORD_BYTES = 1024

#: Records of 1 KiB in a batch.
BATCHES = {"batches of 16 KiB": 16, "batches of 1 MiB": 1000}


class MetadataEvents:
    """A metadata log in memory."""

    partition_count = 1

    def __init__(self) -> None:
        self._values: list[bytes] = []

    def append(self, _partition: int, value: bytes, _timestamp_ms: int) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def read(self, _partition: int, offset: int, _max_bytes: int) -> EventsRead:
        events = list(enumerate(self._values))[offset:]
        return EventsRead(events, offset + len(events))

    def start_offset(self, _partition: int) -> int:
        return 0

    def end_offset(self, _partition: int) -> int:
        return len(self._values)

    def read_snapshot(self, _partition: int) -> bytes | None:
        return None

    def write_snapshot(self, _partition: int, _data: bytes) -> None:
        """Nothing: every round begins again."""


class SealedPartition:
    """A partition of at least `size` bytes of random records, all of them in sealed segments, none of them remote
    yet."""

    def __init__(self, directory: Path, batch_records: int, size: int) -> None:
        self._directory = directory
        self._caches = itertools.count()
        config = LogConfig(
            segment_bytes=SEGMENT_BYTES,
            remote_storage_enable=True,
            retention_ms=-1,
            local_retention_bytes=1,
            max_message_bytes=2 * RECORD_BYTES * 1024,
        )
        self.log = PartitionLog.open(directory / "t-0", config, topic_id=random_uuid())
        self.log.leader_epochs.assign(0, 0)
        now_ms = time.time_ns() // 1_000_000
        values = [os.urandom(RECORD_BYTES) for _ in range(batch_records)]
        batch = build_batch(
            [Record(offset=n, timestamp_ms=now_ms, key=None, value=value) for n, value in enumerate(values)]
        )
        for _ in range(size // len(batch) + 1):
            self.log.append_as_leader(batch, leader_epoch=0)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.roll()

    @property
    def sealed_files(self) -> list[Path]:
        return [segment.log_path for segment in self.log.segments[:-1]]

    def manager(self, store: ObjectStore, events: MetadataEvents) -> RemoteLogManager:
        """A new one, whose caches are empty."""
        manager = RemoteLogManager(
            ObjectStoreRemoteStorageManager(store),
            TopicBasedRemoteLogMetadataManager(events),
            BrokerConfig(),
            self._directory / f"cache-{next(self._caches)}",
        )
        manager.on_leadership_change([self.log])
        return manager

    def copy(self, store: ObjectStore, events: MetadataEvents) -> None:
        """Copy every sealed segment."""
        manager = self.manager(store, events)
        manager.run_once(topic_id_partition(self.log))
        manager.close()
