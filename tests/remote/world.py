"""A small world for tests of the remote tier: one partition's log, a store, a metadata log, and the manager over them.

world = World(tmp_path)
world.append(50)                 # batches of a few records, and sealed segments with them
world.tier()                     # copy what is due, expire what is due
world.drop_local()               # local retention
world.restart()                  # a new process over the same disk, store and metadata
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.metadata.log import EventsRead
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage.object_names import ObjectKey
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.tier.log_view import topic_id_partition
from stratalog.remote.tier.manager import RemoteLogManager, RunResult
from stratalog.testing.clock import ManualClock
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore
from stratalog.util.filesystem import File, FileSystem, StrPath

TOPIC_ID = UUID("75f713d9-1cd5-4da6-b690-a65bd55318b6")
RECORDS_IN_BATCH = 7
BATCH_MS = 1_000

#: Small segments, everything kept for ever, and nothing local kept that is remote.
CONFIG = LogConfig(
    segment_bytes=6_000,
    index_interval_bytes=500,
    retention_ms=-1,
    local_retention_bytes=1,
    remote_storage_enable=True,
)


class UnsyncedFile(File):
    def sync(self) -> None:
        """Nothing: a process dies in these tests, never the machine."""


class UnsyncedFileSystem(FileSystem):
    """The real one without its waits for the disk."""

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        return UnsyncedFile(path, os.open(path, flags | (os.O_CREAT if create else 0) | os.O_CLOEXEC, 0o644))

    def sync_dir(self, path: StrPath) -> None:
        """Nothing."""


class MemoryMetadataLog:
    """A metadata log in memory that survives the process; an append is one step of `faults`."""

    def __init__(self, partition_count: int = 3, faults: FaultPlan | None = None) -> None:
        self.partition_count = partition_count
        self.values: list[list[bytes]] = [[] for _ in range(partition_count)]
        self.snapshots: dict[int, bytes] = {}
        self._faults = faults or FaultPlan()

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        self._faults.step("append metadata", lambda: self.values[partition].append(value))
        return len(self.values[partition]) - 1

    def read(self, partition: int, offset: int, max_bytes: int) -> EventsRead:
        """At most two at a time, so that replays take several reads."""
        events = list(enumerate(self.values[partition][offset : offset + 2], offset))
        return EventsRead(events, offset + len(events))

    def start_offset(self, partition: int) -> int:
        return 0

    def end_offset(self, partition: int) -> int:
        return len(self.values[partition])

    def read_snapshot(self, partition: int) -> bytes | None:
        return self.snapshots.get(partition)

    def write_snapshot(self, partition: int, data: bytes) -> None:
        self.snapshots[partition] = data


class World:
    """See the module. `expected` has the bytes of every batch that was appended, by its base offset."""

    def __init__(
        self,
        tmp_path: Path,
        config: LogConfig = CONFIG,
        *,
        store: ObjectStore | None = None,
        broker: Mapping[str, str] | None = None,
        deadline_ms: int = 20_000,
        recovery_point: int = 0,
        clock: ManualClock | None = None,
    ) -> None:
        self.path = tmp_path
        self.clock = clock or ManualClock()
        self.faults = FaultPlan()
        self.inner = store or ObjectStore.from_url("memory:///")
        self.store = FaultyObjectStore(self.inner, self.faults)
        self.metadata_log = self._metadata_log()
        self.deadline_ms = deadline_ms
        self.broker = BrokerConfig(dict(broker or {}))
        self.position_max: int | None = None
        #: Of the topic, as the broker knows it; only the first one has a log here.
        self.partition_count: int | None = None
        self.expected: dict[int, bytes] = {}
        self.leader_epoch = 0
        self._config = config
        self._log_start_offset = 0
        self._recovery_point = recovery_point
        self.log = self._open()
        self.manager = self._manager()

    def _metadata_log(self) -> MemoryMetadataLog:
        return MemoryMetadataLog(faults=self.faults)

    def _open(self) -> PartitionLog:
        log = PartitionLog.open(
            self.path / "t-0",
            self._config,
            topic_id=TOPIC_ID,
            clock=self.clock,
            fs=UnsyncedFileSystem(),
            clean_shutdown=False,
            recovery_point=self._recovery_point,
            log_start_offset=self._log_start_offset,
        )
        log.leader_epochs.assign(self.leader_epoch, log.log_end_offset)
        log.update_high_watermark(log.log_end_offset)
        return log

    def _manager(self) -> RemoteLogManager:
        self.rsm = ObjectStoreRemoteStorageManager(self.store, deadline_ms=self.deadline_ms)
        if self.position_max is not None:
            self.rsm.position_max = self.position_max  # type: ignore[attr-defined]
        self.rlmm = TopicBasedRemoteLogMetadataManager(self.metadata_log, clock=self.clock)
        manager = RemoteLogManager(
            self.rsm,
            self.rlmm,
            self.broker,
            self.path / "cache",
            self.clock,
            partition_count=lambda topic_id: self.partition_count if topic_id == TOPIC_ID else None,
        )
        manager.on_leadership_change([self.log])
        return manager

    def restart(self, *, crashed: bool = False) -> None:
        """End the process, cleanly or not, and begin another one, of the next leader epoch when it crashed."""
        self.faults.heal()
        if not crashed:  # a crashed process has not written its checkpoints
            self._log_start_offset = self.log.log_start_offset
        self.manager.close()
        if not crashed:
            self.log.close()
        self.leader_epoch += crashed
        self.log = self._open()
        self.manager = self._manager()

    def checkpoint(self) -> None:
        """Write where the log begins, as the broker does now and then: a crash does not undo it."""
        self._log_start_offset = self.log.log_start_offset

    def close(self) -> None:
        self.faults.heal()
        self.manager.close()
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what happens -----------------------------------------------------------------------------------------------

    @property
    def partition(self) -> TopicIdPartition:
        return topic_id_partition(self.log)

    def append(self, batches: int, *, value_size: int = 50, **batch_options: Any) -> None:
        """Append batches of `RECORDS_IN_BATCH` records; the clock moves on by `BATCH_MS` with each."""
        for _ in range(batches):
            self.clock.advance(BATCH_MS)
            now = self.clock.now_ms()
            records = [
                Record(offset=n, timestamp_ms=now + n, key=b"k%d" % n, value=bytes(value_size))
                for n in range(RECORDS_IN_BATCH)
            ]
            self.append_raw(build_batch(records, **batch_options))

    def append_raw(self, batch: bytes, origin: Any = "client") -> None:
        info = self.log.append_as_leader(batch, leader_epoch=self.leader_epoch, origin=origin)
        self.log.update_high_watermark(self.log.log_end_offset)
        fetched = self.log.read(info.first_offset, 1)
        assert fetched.slice is not None
        self.expected[info.first_offset] = fetched.slice.read()

    def tier(self) -> RunResult:
        return self.manager.run_once(self.partition)

    def configure(self, **changes: Any) -> None:
        """Put topic configuration in force."""
        self._config = replace(self._config, **changes)
        self.log.config = self._config

    def index_cache_forget(self) -> None:
        """Go on in a new process whose index cache was lost."""
        self.restart()
        for path in (self.path / "cache").iterdir():
            path.unlink()
        self.manager.close()
        self.manager = self._manager()

    def limit_positions(self, position_max: int | None) -> None:
        """Go on in a new process with a storage plugin that takes no larger positions."""
        self.position_max = position_max
        self.restart()

    def drop_local(self) -> int:
        """Apply local retention; return how many segments went."""
        return len(self.log.delete_old_segments())

    # --- what is so -------------------------------------------------------------------------------------------------

    def read_all(self, *, max_bytes: int = 3_000) -> dict[int, bytes]:
        """Every batch from the log start offset to the end, from whichever tier has it, as a consumer reads them."""
        found: dict[int, bytes] = {}
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            if offset < self.log.local_log_start_offset:
                records = self.manager.read(self.partition, offset, max_bytes).records
            else:
                fetched = self.log.read(offset, max_bytes)
                assert fetched.slice is not None
                records = fetched.slice.read()
            batches = list(iter_batches(records))
            assert batches, f"nothing at offset {offset}"
            for batch in batches:
                found[batch.base_offset] = bytes(batch.as_memoryview())
                offset = batch.last_offset + 1
        return found

    def expect_everything(self) -> None:
        """Every batch from the log start offset on is served, byte for byte as it was appended."""
        found = self.read_all()
        start = self.log.log_start_offset
        wanted = {base: data for base, data in self.expected.items() if base + RECORDS_IN_BATCH > start}
        assert found == wanted

    def objects(self) -> list[str]:
        """The keys in the store."""
        return sorted(info.key for info in self.inner.list())

    def orphans(self) -> list[str]:
        """Objects that belong to no segment that the metadata knows."""
        segments = self.rlmm.list_remote_log_segments(self.partition)
        known = {segment.segment_id.id for segment in segments}
        keys = ((key, ObjectKey.parse(key)) for key in self.objects())
        return [key for key, parsed in keys if parsed is None or parsed.segment_id.id not in known]
