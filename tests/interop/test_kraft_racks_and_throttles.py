"""Reads from followers by rack (KIP-392) and throttled replication (KIP-73), beside a broker of Kafka's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition as KafkaPartition

from stratalog.wire import ApiKey
from stratalog.wire.client import Client, Cluster, ConnectionOptions
from tests.interop.test_kraft_replication import FIRST, JVM, SECOND, OurMember, World, Writer, wait_until
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

RACKS = {JVM: "a", FIRST: "b", SECOND: "c"}
CONFIG = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.max.bytes": "16384",
}
OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 1, 74, 75


class RackWorld(World):
    """A broker of Kafka's and two of ours, each in its own rack."""

    def __init__(self, cluster: KraftCluster) -> None:
        cluster.start_broker(JVM, {"broker.rack": RACKS[JVM], **CONFIG})
        self.cluster = cluster
        self.ours = {node: OurMember(cluster, node, {"broker.rack": RACKS[node], **CONFIG}) for node in (FIRST, SECOND)}
        self.bootstrap = ",".join(
            [cluster.bootstrap_servers, *(f"127.0.0.1:{each.port}" for each in self.ours.values())]
        )
        self.clients = {
            node: Client("127.0.0.1", port, ConnectionOptions.of({"kafka.bootstrap.servers": f"127.0.0.1:{port}"}))
            for node, port in {
                JVM: cluster.brokers[JVM].port,
                **{n: each.port for n, each in self.ours.items()},
            }.items()
        }
        self.client = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.bootstrap}))

    def fetch(self, node: int, topic: str, offset: int, *, rack: str = "", epoch: int = -1, version: int = 12) -> Any:
        """Ask one broker, as a consumer in `rack`; the answer for the only partition."""
        wanted = {
            "partition": 0,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "partition_max_bytes": 1 << 20,
        }
        reported = self.clients[node].call(
            ApiKey.FETCH,
            (version, version),
            replica_id=-1,
            max_wait=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic, "partitions": [wanted]}],
            forgotten_topics_data=[],
            **({"rack_id": rack} if version >= 11 else {}),
        )
        return reported.responses[0].partitions[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackWorld]:
    require_reference_kafka()
    with KraftCluster(tmp_path_factory.mktemp("kraft")) as cluster:
        made = RackWorld(cluster)
        yield made
        made.client.close()
        for client in made.clients.values():
            client.close()
        for each in made.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


def _reported(answer: Any) -> tuple[Any, ...]:
    return (
        int(answer.error_code),
        int(getattr(answer, "preferred_read_replica", -1)),
        int(answer.high_watermark),
        int(answer.last_stable_offset),
        int(answer.log_start_offset),
        bytes(answer.records or b""),
    )


def _is_known(world: RackWorld, topic: str, leader: int, follower: int) -> bool:
    """Return whether the follower knows what is committed, and the leader how far the follower is."""
    sent_on = world.fetch(leader, topic, 20, rack=RACKS[follower])
    return bool(world.fetch(follower, topic, 0).high_watermark == 20 and sent_on.preferred_read_replica == follower)


def test_kafka_and_ours_send_consumers_to_their_rack_and_answer_as_followers(world: RackWorld) -> None:
    reported: dict[int, list[tuple[Any, ...]]] = {}
    for leader, follower in ((JVM, FIRST), (FIRST, JVM)):
        topic = f"racks-of-{leader}"
        world.create(topic, [leader, follower])
        writer = Writer(world, topic, 1)
        writer.write(20)
        writer.flush()
        world.wait_until_equal(topic, [[leader, follower]])
        rack, own = RACKS[follower], RACKS[leader]
        wait_until(partial(_is_known, world, topic, leader, follower), "both know what is committed")
        sent_on = [_reported(world.fetch(leader, topic, offset, rack=rack)) for offset in (0, 7, 20)]
        assert [(each[0], each[1], each[5]) for each in sent_on] == [(0, follower, b"")] * 3
        for offset in (0, 7, 20):
            served = _reported(world.fetch(follower, topic, offset, rack=rack))
            assert served == _reported(world.fetch(leader, topic, offset, rack=own)), "the same bytes"
            assert served[1] == -1
        reported[leader] = [
            *((code, preferred == follower, *rest) for code, preferred, *rest in ((*each[:5],) for each in sent_on)),
            _reported(world.fetch(leader, topic, 0, rack="nowhere"))[:5],
            _reported(world.fetch(leader, topic, 0))[:5],
            _reported(world.fetch(leader, topic, 99, rack=rack))[:5],
            _reported(world.fetch(follower, topic, 99, rack=rack))[:5],
            _reported(world.fetch(follower, topic, 0, rack=rack, epoch=0))[:5],
            _reported(world.fetch(follower, topic, 0, rack=rack, epoch=9))[:5],
            _reported(world.fetch(leader, topic, 0, rack=rack, epoch=9))[:5],
            _reported(world.fetch(follower, topic, 0, version=10))[:1],
        ]
    assert reported[JVM] == reported[FIRST]


def test_a_consumer_of_librdkafka_reads_from_the_follower_in_its_rack(world: RackWorld) -> None:
    world.create("near", [JVM, FIRST, SECOND])
    writer = Writer(world, "near", 1)
    writer.write(500)
    writer.flush()
    seen: list[dict[str, Any]] = []
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": "not used",
            "enable.auto.commit": False,
            "client.rack": RACKS[SECOND],
            "statistics.interval.ms": 200,
            "stats_cb": lambda text: seen.append(json.loads(text)),
        }
    )
    consumer.assign([KafkaPartition("near", 0, 0)])
    values: list[bytes] = []

    def reads() -> bool:
        values.extend(bytes(each.value()) for each in consumer.consume(100, 0.2) if each.error() is None)
        partitions = [each["topics"].get("near", {}).get("partitions", {}).get("0", {}) for each in seen[-1:]]
        return len(values) >= 500 and [each.get("broker") for each in partitions] == [SECOND]

    wait_until(reads, "all is read, and by the broker in the same rack")
    writer.write(100)
    writer.flush()
    wait_until(lambda: reads() and len(values) >= 600, "what comes later too")
    consumer.close()
    assert len(values) == len(set(values)) == 600


def _throttle(world: RackWorld, rate: int | None, *nodes: int) -> None:
    """Set, or (None) delete, both rates on brokers."""
    resources = [
        {
            "resource_type": 4,
            "resource_name": str(node),
            "configs": [
                {
                    "name": f"{side}.replication.throttled.rate",
                    "config_operation": 1 if rate is None else 0,
                    "value": None if rate is None else str(rate),
                }
                for side in ("leader", "follower")
            ],
        }
        for node in nodes
    ]
    for node, resource in zip(nodes, resources, strict=True):  # each broker takes its own
        reported = world.clients[node].call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, (1, 1), resources=[resource], validate_only=False
        )
        assert [int(each.error_code) for each in reported.responses] == [0], reported


def _lag(world: RackWorld, topic: str, replica: int) -> int:
    """Return how far `stratalog cluster status` sees a replica behind its leader."""
    command = [sys.executable, "-m", "stratalog", "cluster", "status", "-b", world.bootstrap, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (found,) = [each for each in json.loads(done.stdout)["under_replicated"] if each["topic"] == topic]
    return int(found["lag"][str(replica)])


@pytest.mark.parametrize(
    ("source", "target", "held_by"), [(JVM, FIRST, FIRST), (FIRST, JVM, FIRST), (FIRST, SECOND, SECOND)]
)
def test_a_throttled_reassignment_waits_for_its_rate(
    world: RackWorld, tmp_path: Path, source: int, target: int, held_by: int
) -> None:
    topic = f"moved-{source}-{target}"
    world.create(topic, [source])
    writer = Writer(world, topic, 1)
    for _ in range(15):  # some 150 KB, at 16 KB in 11 s
        writer.write(1000)
        writer.flush()
    plan = tmp_path / "plan.json"
    wanted = {"topic": topic, "partition": 0, "replicas": [target]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    options = ["--bootstrap-server", world.bootstrap, "--reassignment-json-file", str(plan)]
    tool(reassign, [*options, "--execute", "--throttle", "1"])
    _throttle(world, None, *({JVM, FIRST, SECOND} - {held_by}))  # only the one of ours holds back
    for _ in range(20):
        assert world.isr(topic) == [{source}]
        world.fetch(source, topic, 0)
    assert 0 < _lag(world, topic, target) <= len(writer.confirmed)
    _throttle(world, 1 << 40, held_by)
    world.wait_for_isr(topic, {target})
    tool(reassign, [*options, "--verify"])
    wait_until(lambda: set(world.logs(f"{topic}-0")) == {target}, "the replica that moved away is deleted")
    assert set(world.read(topic, 1, len(writer.confirmed))) == writer.confirmed
