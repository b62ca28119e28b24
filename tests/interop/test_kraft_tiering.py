"""Tiered topics in a cluster with a controller of Kafka's: the leader copies, followers begin after that."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as KafkaPartition

from stratalog.engine.dirs import format_dir
from stratalog.wire import ApiKey
from stratalog.wire.client import EARLIEST_LOCAL_OFFSET, LATEST_TIERED_OFFSET, Cluster, ConnectionOptions
from tests.interop.test_kraft_replication import OurMember, wait_until
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

NODES = (7, 8)
TOPIC = "orders"
VALUE_BYTES = 20_000


class TieredCluster:
    """One controller of Kafka's, two brokers of ours, one directory as the bucket of both."""

    def __init__(self, cluster: KraftCluster) -> None:
        self.cluster = cluster
        self.bucket = cluster.directory / "bucket"
        config = {
            "remote.log.storage.system.enable": "true",
            "stratalog.remote.url": self.bucket.as_uri(),
            "remote.log.manager.task.interval.ms": "300",
            "remote.log.metadata.topic.num.partitions": "3",
            "remote.log.metadata.topic.replication.factor": "2",
            "remote.log.metadata.topic.min.isr": "1",
            "log.retention.check.interval.ms": "500",
            "log.initial.task.delay.ms": "200",
            "replica.lag.time.max.ms": "3000",
            "follower.fetch.last.tiered.offset.enable": "true",
        }
        self.ours = {node: OurMember(cluster, node, config) for node in NODES}
        self.servers = ",".join(f"127.0.0.1:{each.port}" for each in self.ours.values())

    def connected(self) -> Cluster:
        return Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.servers}))

    def create(self) -> None:
        topic = {
            "name": TOPIC,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": list(NODES)}],
            "configs": [
                {"name": "remote.storage.enable", "value": "true"},
                {"name": "segment.bytes", "value": str(1 << 20)},
                {"name": "local.retention.bytes", "value": str(3 << 20)},
                {"name": "retention.ms", "value": "-1"},
            ],
        }
        with self.connected() as client:
            reported = client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
            assert [(int(each.error_code), each.error_message) for each in reported.topics] == [(0, None)]

    def offset(self, which: int) -> int:
        with self.connected() as client:
            return client.list_offsets({(TOPIC, 0): which})[TOPIC, 0].offset

    def leader(self) -> int:
        with self.connected() as client:
            found = client.topics([TOPIC]).get(TOPIC)
            return -1 if found is None else found.partitions[0].leader

    def isr(self) -> set[int]:
        with self.connected() as client:
            reported = client.any.call(ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics[0]
            return set(map(int, reported.partitions[0].isr_nodes))

    def produce(self, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "enable.idempotence": True})
        for number in range(first, first + count):
            producer.produce(TOPIC, value=b"%08d" % number + bytes(VALUE_BYTES), partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0

    def numbers(self, count: int) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "-", "enable.auto.commit": False})
        consumer.assign([KafkaPartition(TOPIC, 0, 0)])
        found: list[int] = []

        def is_all() -> bool:
            taken = consumer.consume(100, 0.5)
            found.extend(int(each.value()[:8]) for each in taken if each.error() is None)
            return len(found) >= count

        wait_until(is_all, f"{count} records are read")
        consumer.close()
        return found

    def wait_until_tiered(self, through: int) -> None:
        """Wait until all up to an offset is remote, and the leader's local log begins far behind its start."""
        wait_until(lambda: self.offset(LATEST_TIERED_OFFSET) >= through, f"{through} is in the remote tier")
        wait_until(lambda: self.offset(EARLIEST_LOCAL_OFFSET) > through - 200, "local segments go")

    def local_start(self, node: int) -> int:
        files = sorted((self.ours[node].data_dir / f"{TOPIC}-0").glob("*.log"))
        return int(files[0].stem) if files else -1


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    require_reference_kafka()
    directory: Path = tmp_path_factory.mktemp("tiered")
    with KraftCluster(directory, config={"remote.log.storage.system.enable": "true"}) as cluster:
        made = TieredCluster(cluster)
        try:
            yield made
        finally:
            for each in made.ours.values():
                each.end(signal.SIGKILL)


def test_records_survive_leaders_and_disks(tiered: TieredCluster) -> None:
    tiered.create()
    wait_until(lambda: tiered.isr() == set(NODES), "both are in sync")
    tiered.produce(0, 500)
    tiered.wait_until_tiered(400)
    wait_until(lambda: tiered.local_start(NODES[1]) > 200, "the follower's local segments go")
    assert tiered.numbers(500) == list(range(500))

    first = tiered.leader()
    second = next(node for node in NODES if node != first)
    tiered.ours[first].end(signal.SIGKILL)
    wait_until(lambda: tiered.leader() == second, "the other one leads")
    tiered.produce(500, 300)
    assert tiered.numbers(800) == list(range(800))
    tiered.wait_until_tiered(700)

    shutil.rmtree(tiered.ours[first].data_dir)
    format_dir(tiered.ours[first].data_dir, cluster_id=tiered.cluster.cluster_id, node_id=first)
    tiered.ours[first].start()
    wait_until(lambda: tiered.isr() == set(NODES), "the empty one is in sync again")
    # the leader still has segments that are remote: the empty one has skipped them
    assert tiered.local_start(first) > tiered.offset(EARLIEST_LOCAL_OFFSET) > 400

    tiered.ours[second].end(signal.SIGKILL)
    wait_until(lambda: tiered.leader() == first, "the one that began again leads")
    tiered.produce(800, 200)
    assert tiered.numbers(1000) == list(range(1000))
    tiered.wait_until_tiered(900)
    tiered.ours[second].start()
    wait_until(lambda: tiered.isr() == set(NODES), "both are in sync")
    assert tiered.numbers(1000) == list(range(1000))

    with tiered.connected() as client:
        reported = client.any.call(ApiKey.DELETE_TOPICS, (6, 6), topics=[{"name": TOPIC}], timeout=20_000)
        assert [int(each.error_code) for each in reported.responses] == [0]
    wait_until(
        lambda: not [each for each in tiered.bucket.rglob("*") if each.is_file() and "_owner" not in each.parts],
        "its remote segments are deleted",
    )
