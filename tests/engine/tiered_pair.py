"""Two brokers with replicas of one tiered partition: real logs, real tasks, one object store, one metadata log.

The leader answers fetches by the broker's own code; tasks have their turns when a test says so.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.engine.test_log_manager import batch
from tests.engine.test_replicas import KEY, PROPERTIES, TOPIC_ID, Pair, View, code
from tests.remote.world import MemoryMetadataLog
from tests.support.waiting import wait_until

from stratalog.broker.apis.k02_list_offsets import _special
from stratalog.broker.fetch.fetch_frames import FetchPartition
from stratalog.broker.fetch.fetching import FetchPlan, WantedPartition, WantedTopic, read_plan
from stratalog.config import BrokerConfig, LogConfig
from stratalog.engine import LogManager
from stratalog.log.format import FileSlice, Isolation
from stratalog.records import iter_batches
from stratalog.remote.metadata import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage import ObjectStoreRemoteStorageManager
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.tier import RemoteLogManager
from stratalog.wire import ApiKey
from stratalog.wire.client import UnreachableError

CONFIG = LogConfig(
    segment_bytes=2_000,
    index_interval_bytes=200,
    retention_ms=-1,
    local_retention_bytes=1,
    remote_storage_enable=True,
    file_delete_delay_ms=0,
)


class TieredView(View):
    pair: TieredPair

    def log_config(self, topic: str) -> LogConfig:
        return self.pair.log_config


class TieredPair(Pair):
    """See the module."""

    def __init__(self, tmp_path: Path, log_config: LogConfig = CONFIG) -> None:
        self.log_config = log_config
        #: Settings of brokers that start from now on, besides `PROPERTIES`.
        self.properties: dict[str, str] = {}
        self.store = ObjectStore.from_url("memory:///")
        self.events = MemoryMetadataLog(partition_count=1)
        self.remotes: dict[int, RemoteLogManager] = {}
        super().__init__(tmp_path)

    def start(self, node: int) -> None:
        config = BrokerConfig.from_properties({**PROPERTIES, **self.properties, "node.id": str(node)})
        engine = LogManager([self.tmp_path / str(node)], config, cluster_id="QlVyk3RvQ9-abcdefghijA")
        self.engines[node] = engine
        engine.start_replicas({KEY: self.assigned}, TieredView(self, node))
        rsm = ObjectStoreRemoteStorageManager(self.store, deadline_ms=20_000)
        rlmm = TopicBasedRemoteLogMetadataManager(self.events)
        self.remotes[node] = RemoteLogManager(rsm, rlmm, config, self.tmp_path / f"cache-{node}", is_shared=True)
        engine.attach_remote(self.remotes[node])

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        with self.lock:  # a change of the ISR may come at the same time
            super().elect(leader, isr)

    def fetch(self, leader: int, fields: dict[str, Any]) -> Any:
        (topic,) = fields["topics"]
        (asked,) = topic["partitions"]
        wanted = FetchPartition(
            0,
            asked["current_leader_epoch"],
            asked["fetch_offset"],
            asked["last_fetched_epoch"],
            asked["partition_max_bytes"],
            asked["log_start_offset"],
        )
        state = fields["replica_state"]
        plan = FetchPlan(
            [WantedTopic(TOPIC_ID.bytes, [WantedPartition(self.partition(leader), wanted, None)])],
            Isolation.LOG_END,
            1,
            1 << 20,
            0,
            state["replica_id"],
            state["replica_epoch"],
        )
        found = read_plan(plan, is_first=True).results[0][1][0]
        records = found.records.read() if isinstance(found.records, FileSlice) else found.records
        epoch, end_offset = found.diverging or (-1, -1)
        answer = SimpleNamespace(
            partition_index=0,
            error_code=code(found.error_code),
            high_watermark=found.high_watermark,
            log_start_offset=found.log_start_offset,
            diverging_epoch=SimpleNamespace(epoch=epoch, end_offset=end_offset),
            records=bytes(records),
        )
        return SimpleNamespace(error_code=code(0), responses=[SimpleNamespace(topic_id=TOPIC_ID, partitions=[answer])])

    def ask(self, leader: int, key: ApiKey, fields: dict[str, Any]) -> Any:
        """Answer ListOffsets and OffsetForLeaderEpoch."""
        partition = self.partition(leader)
        (wanted,) = fields["topics"][0]["partitions"]
        partition.check_epoch(wanted["current_leader_epoch"])
        if key is ApiKey.LIST_OFFSETS:
            at = _special(partition, wanted["timestamp"], Isolation.LOG_END)
            answer = SimpleNamespace(error_code=code(0), offset=at.offset, leader_epoch=at.leader_epoch)
        else:
            epoch, end = partition.log.leader_epochs.end_offset_for(
                wanted["leader_epoch"], partition.log.log_end_offset
            )
            answer = SimpleNamespace(error_code=code(0), leader_epoch=epoch, end_offset=end)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[answer])])

    # --- what happens -------------------------------------------------------------------------------------------------

    def append(self, batches: int, *, size: int = 300) -> None:
        """Append to the leader; the follower has all of it, and knows so, when this returns."""
        leader = self.partition(self.assigned.leader)
        for number in range(batches):
            leader.append(batch(b"%d" % number + bytes(size)))
        self.settle()

    def settle(self) -> None:
        """Wait until both replicas that can be reached are equal in their bounds."""
        alive = [self.partition(node).log for node in (1, 2) if node not in self.unreachable]
        leader = self.partition(self.assigned.leader).log
        wait_until(
            lambda: all(
                each.log_end_offset == leader.log_end_offset == each.high_watermark == leader.high_watermark
                for each in alive
            ),
            "the replicas are equal",
            seconds=10,
            every=0.003,
        )

    def tier(self, *nodes: int) -> None:
        """Give the tasks of brokers a turn, and their local retention."""
        for node in nodes or (1, 2):
            self.remotes[node].run_once(KEY)
            self.engines[node].apply_retention()

    def read_all(self, node: int) -> list[int]:
        """Return the offsets that a consumer of this broker reads, from both tiers."""
        partition = self.partition(node)
        offset, found = partition.log.log_start_offset, []
        while offset < partition.log.high_watermark:
            if partition.is_remote(offset):
                data = partition.read_remote(offset, 1 << 20).records
            else:
                read = partition.read(offset, 1 << 20).slice
                data = b"" if read is None else bytes(read.read())
            batches = list(iter_batches(data))
            assert batches, f"nothing is read at {offset} of broker {node}"
            for each in batches:
                found += [record.offset for record in each.records() if record.offset >= offset]
            offset = batches[-1].next_offset
        return found

    def copied_by(self) -> dict[int, list[tuple[int, int]]]:
        """Return the readable segments, by the broker that copied each."""
        found: dict[int, list[tuple[int, int]]] = {}
        for segment in self.remotes[1].segments(KEY):
            if segment.is_readable:
                found.setdefault(segment.broker_id, []).append((segment.start_offset, segment.end_offset))
        return {broker: sorted(ranges) for broker, ranges in found.items()}

    def objects(self) -> set[str]:
        """Return what is in the store beside its owner's mark."""
        return {each.key for each in self.store.list("") if not each.key.startswith("_owner")}


class TieredWire:
    def __init__(self, pair: TieredPair, leader: int, node: int) -> None:
        self.pair, self.leader, self.node, self.is_broken = pair, leader, node, False

    def call(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        if {self.leader, self.node} & self.pair.unreachable:
            raise UnreachableError("cut")
        if key is ApiKey.FETCH:
            return self.pair.fetch(self.leader, fields)
        return self.pair.ask(self.leader, key, fields)

    def close(self) -> None:
        pass
