"""A network that loses what some nodes send to others: nothing that was confirmed is lost, and all replicas meet again.

One controller, one JVM broker and two of ours, each in a network namespace of its own.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as KafkaPartition

from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.interop.test_kraft_replication import OurMember, wait_until
from tests.support.kraft_cluster import KraftCluster, Place
from tests.support.network_namespaces import NetworkOfNodes
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

CONTROLLER, JVM, FIRST, SECOND = 100, 1, 7, 8
EVERYBODY = {JVM, FIRST, SECOND}
ASSIGNMENTS = [[FIRST, SECOND, JVM], [SECOND, JVM, FIRST], [JVM, FIRST, SECOND]]
#: How long a cut lasts: longer than a session, and than the time after which a follower leaves the in-sync replicas.
CUT_S = 12.0
CONFIG = {
    "replica.lag.time.max.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
}


class World:
    """Belongs to a thread that is inside the network."""

    def __init__(self, directory: Path, network: NetworkOfNodes) -> None:
        self.network = network
        self.cluster = KraftCluster(
            directory,
            config={"broker.session.timeout.ms": "4000"},
            place=lambda node: Place(network.host(node), network.prefix(node)),
        ).__enter__()
        self.cluster.start_broker(JVM, CONFIG)
        self.ours = {node: OurMember(self.cluster, node, CONFIG) for node in (FIRST, SECOND)}
        ours = [f"{network.host(node)}:{each.port}" for node, each in self.ours.items()]
        self.bootstrap = ",".join([self.cluster.bootstrap_servers, *ours])

    def close(self) -> None:
        for each in self.ours.values():
            each.process.kill()
            each.process.communicate()
        self.cluster.__exit__(None, None, None)

    def metadata(self, topic: str) -> list[Any]:
        with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.cluster.bootstrap_servers})) as client:
            reported = client.any.call(ApiKey.METADATA, (12, 12), topics=[{"name": topic}]).topics[0]
        return sorted(reported.partitions, key=lambda each: each.partition_index)

    def create(self, topic: str) -> None:
        wanted = {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": at, "broker_ids": each} for at, each in enumerate(ASSIGNMENTS)],
            "configs": [{"name": "min.insync.replicas", "value": "2"}],
        }
        with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.cluster.bootstrap_servers})) as client:
            reported = client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[wanted], timeout=20_000)
        assert [int(each.error_code) for each in reported.topics] == [0]
        wait_until(lambda: self.is_whole(topic), f"{topic} is in sync")

    def is_whole(self, topic: str) -> bool:
        return [set(map(int, each.isr_nodes)) for each in self.metadata(topic)] == [EVERYBODY] * len(ASSIGNMENTS)

    def logs(self, partition: str) -> set[str]:
        """Return what the `.log` files hash to; ours are written into space that is reserved."""
        places = [self.cluster.brokers[JVM].data_dir, *(each.data_dir for each in self.ours.values())]
        return {
            hashlib.sha256(
                b"".join(each.read_bytes().rstrip(b"\0") for each in sorted((place / partition).glob("*.log")))
            ).hexdigest()
            for place in places
        }

    def read(self, topic: str, wanted: set[bytes]) -> list[bytes]:
        """Read until everything that is wanted is there, and what is behind it."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "not used", "enable.auto.commit": False})
        consumer.assign([KafkaPartition(topic, at, 0) for at in range(len(ASSIGNMENTS))])
        values: list[bytes] = []
        left = set(wanted)

        def take() -> bool:
            some = [bytes(each.value()) for each in consumer.consume(2000, 0.2) if each.error() is None]
            values.extend(some)
            left.difference_update(some)
            return not left and not some

        try:
            wait_until(take, f"all {len(wanted)} confirmed records are read")
        finally:
            consumer.close()
        return values


class Load:
    """Records to all partitions with acks=all from begin to end; `confirmed` are those that were acknowledged."""

    def __init__(self, world: World, topic: str) -> None:
        self.confirmed: list[bytes] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": world.bootstrap, "acks": "all", "linger.ms": 5, "message.timeout.ms": 60_000,
                "socket.timeout.ms": 5000, "socket.connection.setup.timeout.ms": 2000,
            }
        )  # fmt: skip
        self._topic = topic
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        wait_until(lambda: len(self.confirmed) > 100, "records are confirmed")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def goes_on(self) -> None:
        """Wait until records that were sent from now on are confirmed for each partition."""
        before = len(self.confirmed)
        wait_until(
            lambda: {value[:1] for value in self.confirmed[before:]} == {b"0", b"1", b"2"}, "every partition is written"
        )

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            at = number % len(ASSIGNMENTS)
            with suppress(BufferError):
                self._producer.produce(self._topic, b"%d-%d" % (at, number), partition=at, on_delivery=self._reported)
                number += 1
            self._producer.poll(0.002)
        self._producer.flush(70)

    def _reported(self, error: Any, message: Any) -> None:
        if error is None:
            self.confirmed.append(bytes(message.value()))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_reference_kafka()
    with NetworkOfNodes([CONTROLLER, JVM, FIRST, SECOND]) as network, network.inside():
        world = World(tmp_path_factory.mktemp("kraft"), network)
        try:
            yield world
        finally:
            world.close()


def both(one: int, *others: int) -> Sequence[tuple[int, int]]:
    return [way for other in others for way in ((one, other), (other, one))]


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("controller", both(FIRST, CONTROLLER)),
        ("to-controller", [(FIRST, CONTROLLER)]),
        ("from-controller", [(CONTROLLER, FIRST)]),
        ("brokers", both(FIRST, SECOND, JVM)),
        ("to-brokers", [(FIRST, SECOND), (FIRST, JVM)]),
        ("from-brokers", [(SECOND, FIRST), (JVM, FIRST)]),
        ("from-a-jvm-leader", [(JVM, FIRST), (JVM, SECOND)]),
        ("all-nodes", both(FIRST, CONTROLLER, SECOND, JVM)),
    ],
)
def test_what_is_confirmed_outlives_a_cut(world: World, name: str, ways: Sequence[tuple[int, int]]) -> None:
    topic = f"cut-{name}"
    world.create(topic)
    with Load(world, topic) as load:
        with world.network.cut(*ways):
            time.sleep(CUT_S)
        load.goes_on()
        wait_until(lambda: world.is_whole(topic), "all replicas are in sync again")
        load.goes_on()
    values = world.read(topic, set(load.confirmed))
    assert set(load.confirmed) <= set(values)
    wait_until(
        lambda: all(len(world.logs(f"{topic}-{at}")) == 1 for at in range(len(ASSIGNMENTS))), "all replicas are equal"
    )
    assert [each.process.poll() for each in world.ours.values()] == [None, None]


def test_cuts_that_come_and_go_quickly(world: World) -> None:
    topic = "cut-often"
    world.create(topic)
    turns = [both(FIRST, SECOND), both(FIRST, CONTROLLER), [(SECOND, JVM)], both(SECOND, CONTROLLER), [(JVM, FIRST)]]
    with Load(world, topic) as load:
        for ways in turns * 3:
            with world.network.cut(*ways):
                time.sleep(1.5)
            time.sleep(0.2)
        wait_until(lambda: world.is_whole(topic), "all replicas are in sync again")
        load.goes_on()
    assert set(load.confirmed) <= set(world.read(topic, set(load.confirmed)))
    wait_until(
        lambda: all(len(world.logs(f"{topic}-{at}")) == 1 for at in range(len(ASSIGNMENTS))), "all replicas are equal"
    )
