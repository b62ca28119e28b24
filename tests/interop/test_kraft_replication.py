"""Brokers of ours and of Kafka's in one cluster hold the same logs, under any leader, and lose nothing confirmed."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as KafkaPartition

from stratalog.engine.dirs import format_dir
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions, UnreachableError
from tests.support import waiting
from tests.support.kraft_cluster import KraftCluster, low_port
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

JVM, FIRST, SECOND = 1, 7, 8
PATIENCE_S = 60.0


def wait_until(condition: Callable[[], object], what: str) -> None:
    waiting.wait_until(condition, what, seconds=PATIENCE_S)


class OurMember:
    """`stratalog serve` in a cluster, as a process that a test may kill and start again."""

    def __init__(self, cluster: KraftCluster, node: int, config: Mapping[str, str]) -> None:
        self.directory = cluster.directory / f"ours-{node}"
        self.data_dir = self.directory / "data"
        self.directory.mkdir()
        format_dir(self.data_dir, cluster_id=cluster.cluster_id, node_id=node)
        self.port = low_port()
        self.place = cluster.place(node)
        properties = cluster.broker_properties(node, self.port, self.data_dir)
        properties |= config
        self.config = self.directory / "server.properties"
        self.config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self.start()

    def start(self) -> None:
        serve = [sys.executable, "-m", "stratalog", "serve", "--verbose", "--config", str(self.config)]
        command = [*self.place.prefix, *serve]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        if not self.process.stdout.readline().startswith("ready broker="):
            self.process.communicate(timeout=PATIENCE_S)
            raise AssertionError((self.directory / "log").read_text())

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=PATIENCE_S)
        return int(self.process.returncode)


class World:
    """One controller, one JVM broker, two of ours."""

    def __init__(
        self, cluster: KraftCluster, config: Mapping[str, str] | None = None, ours: Mapping[str, str] | None = None
    ) -> None:
        """`config` is that of all brokers, `ours` of ours alone."""
        self.cluster = cluster
        cluster.start_broker(JVM, {"replica.lag.time.max.ms": "5000", **(config or {})})
        own = {**(config or {}), **(ours or {})}
        self.ours = {node: OurMember(cluster, node, own) for node in (FIRST, SECOND)}
        self.bootstrap = ",".join(
            [cluster.bootstrap_servers, *(f"127.0.0.1:{each.port}" for each in self.ours.values())]
        )
        self.client = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.bootstrap}))

    @contextmanager
    def asking(self, node: int) -> Iterator[None]:
        """Ask one broker of ours for the time of the block, since the JVM broker does not answer in it."""
        usual = self.client
        address = f"127.0.0.1:{self.ours[node].port}"
        with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": address})) as self.client:
            try:
                yield
            finally:
                self.client = usual

    def create(self, name: str, *replicas: list[int], **configs: str) -> None:
        """Create a topic, its partitions on these brokers, the leader first."""
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": at, "broker_ids": each} for at, each in enumerate(replicas)],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        reported = self.client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
        assert [int(each.error_code) for each in reported.topics] == [0]

    def leaders(self, name: str) -> list[int]:
        return [int(each.leader_id) for each in self._partitions(name)]

    def isr(self, name: str) -> list[set[int]]:
        return [set(map(int, each.isr_nodes)) for each in self._partitions(name)]

    def _partitions(self, name: str) -> list[Any]:
        def ask() -> Any:
            return self.client.any.call(ApiKey.METADATA, (12, 12), topics=[{"name": name}]).topics[0]

        try:
            reported = ask()
        except UnreachableError:  # the broker that was asked has gone; now another one is
            reported = ask()
        return sorted(reported.partitions, key=lambda each: each.partition_index)

    def logs(self, partition: str) -> dict[int, str]:
        """Return what the `.log` files of each replica hash to; ours are written into space that is reserved."""
        found = {}
        for node, directory in self.data_dirs().items():
            files = sorted((directory / partition).glob("*.log"))
            if files:
                found[node] = hashlib.sha256(b"".join(each.read_bytes().rstrip(b"\0") for each in files)).hexdigest()
        return found

    def data_dirs(self) -> dict[int, Path]:
        jvm = {node: each.data_dir for node, each in self.cluster.brokers.items()}
        return jvm | {node: each.data_dir for node, each in self.ours.items()}

    def wait_until_equal(self, topic: str, places: Sequence[list[int]]) -> None:
        """Return once all replicas of each partition hold the same bytes."""
        for at, replicas in enumerate(places):
            self._wait_until_equal(f"{topic}-{at}", set(replicas))

    def _wait_until_equal(self, partition: str, replicas: set[int]) -> None:
        def are_equal() -> bool:
            logs = self.logs(partition)
            return logs.keys() == replicas and len(set(logs.values())) == 1

        wait_until(are_equal, f"the replicas of {partition} are equal")

    def wait_for_isr(self, topic: str, *wanted: set[int]) -> None:
        wait_until(lambda: self.isr(topic) == list(wanted), f"{topic} is in sync on {wanted}")

    def elect_preferred(self, topic: str) -> bool:
        """Have the first replica of each partition elected; always False, as the metadata comes later."""
        asked = [{"topic": topic, "partitions": list(range(len(self.leaders(topic))))}]
        self.client.any.call(ApiKey.ELECT_LEADERS, (2, 2), election_type=0, topic_partitions=asked, timeout=20_000)
        return False

    def wait_until_not_leading(self, topic: str, node: int) -> None:
        wait_until(lambda: node not in self.leaders(topic), f"broker {node} leads nothing of {topic}")

    def read(self, name: str, partitions: int, count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "not used", "enable.auto.commit": False})
        consumer.assign([KafkaPartition(name, at, 0) for at in range(partitions)])
        values: list[bytes] = []
        wait_until(lambda: _take(consumer, values) >= count, f"{count} records are read")
        consumer.close()
        return values


def _take(consumer: Consumer, values: list[bytes]) -> int:
    values += [bytes(each.value()) for each in consumer.consume(1000, 0.2) if each.error() is None]
    return len(values)


class Writer:
    """Writes numbers with acks=all, and knows which of them were confirmed."""

    def __init__(self, world: World, topic: str, partitions: int) -> None:
        self._topic, self._partitions = topic, partitions
        self._next = 0
        self.confirmed: set[bytes] = set()
        self.refused: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": world.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                # A stopped broker keeps its connections: requests to it have to end well before their messages do.
                "socket.timeout.ms": 10_000,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            value = str(self._next).encode()
            self._producer.produce(self._topic, value, partition=self._next % self._partitions, callback=self._reported)
            self._producer.poll(0)
            self._next += 1

    def _reported(self, error: object, message: object) -> None:
        if error is None:
            self.confirmed.add(bytes(message.value()))  # type: ignore[attr-defined]
        else:
            self.refused.append(str(error))

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_reference_kafka()
    with KraftCluster(tmp_path_factory.mktemp("kraft")) as cluster:
        made = World(cluster)
        yield made
        made.client.close()
        for each in made.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


PLACES = ([FIRST, JVM], [FIRST, SECOND], [JVM, FIRST], [SECOND, JVM])


def test_logs_are_equal_under_any_leader(world: World) -> None:
    world.create("mixed", *PLACES, min_insync_replicas="2")
    writer = Writer(world, "mixed", len(PLACES))
    writer.write(4000)
    writer.flush()
    assert (len(writer.confirmed), writer.refused) == (4000, [])
    world.wait_until_equal("mixed", PLACES)
    assert set(world.read("mixed", len(PLACES), 4000)) == writer.confirmed


def test_nothing_confirmed_is_lost_when_leaders_are_killed(world: World) -> None:
    places = ([FIRST, JVM, SECOND], [SECOND, FIRST, JVM], [JVM, SECOND, FIRST])
    world.create("killed", *places, min_insync_replicas="2")
    writer = Writer(world, "killed", len(places))
    writer.write(1000)
    writer.flush()
    for node in (FIRST, SECOND):
        writer.write(500)
        world.ours[node].end(signal.SIGKILL)
        world.wait_until_not_leading("killed", node)
        writer.write(500)
        world.ours[node].start()
        world.wait_for_isr("killed", *map(set, places))
    writer.flush()
    assert (len(writer.confirmed), writer.refused) == (3000, [])
    values = world.read("killed", len(places), 3000)
    assert set(values) == writer.confirmed
    assert len(values) == 3000, "nothing twice"
    world.wait_until_equal("killed", places)


def test_a_leader_that_is_stopped_confirms_nothing_more_and_follows_when_it_goes_on(world: World) -> None:
    """SIGSTOP for longer than a session: what waited for it is written once, by the leader that came after."""
    places = [[FIRST, SECOND, JVM], [FIRST, JVM, SECOND], [JVM, FIRST, SECOND]]
    world.create("stopped", *places, min_insync_replicas="2")
    writer = Writer(world, "stopped", len(places))
    writer.write(300)
    writer.flush()
    stopped = world.ours[FIRST].process
    stopped.send_signal(signal.SIGSTOP)
    try:
        writer.write(300)  # some of it waits in the buffers of the one that is stopped
        wait_until(lambda: FIRST not in world.leaders("stopped"), "others lead")
        writer.write(300)
        writer.flush()
    finally:
        stopped.send_signal(signal.SIGCONT)
    world.wait_for_isr("stopped", *map(set, places))
    assert stopped.poll() is None
    wait_until(lambda: world.leaders("stopped")[0] == FIRST or world.elect_preferred("stopped"), "it leads again")
    writer.write(300)
    writer.flush()
    assert (len(writer.confirmed), writer.refused) == (1200, [])
    values = world.read("stopped", len(places), 1200)
    assert set(values) == writer.confirmed
    assert len(values) == 1200, "nothing twice"
    world.wait_until_equal("stopped", places)


def test_a_leader_of_kafkas_that_is_stopped_costs_nothing_confirmed_and_comes_back(world: World) -> None:
    """The same the other way round: ours lead what it led, and it follows them when it goes on."""
    places = [[JVM, FIRST, SECOND], [JVM, SECOND, FIRST], [FIRST, JVM, SECOND]]
    world.create("paused", *places, min_insync_replicas="2")
    writer = Writer(world, "paused", len(places))
    writer.write(300)
    writer.flush()
    stopped = world.cluster.brokers[JVM]
    with world.asking(FIRST):
        stopped.send_signal(signal.SIGSTOP)
        try:
            writer.write(300)
            wait_until(lambda: world.leaders("paused") == [FIRST, SECOND, FIRST], "ours lead")
            writer.write(300)
            writer.flush()
        finally:
            stopped.send_signal(signal.SIGCONT)
        world.wait_for_isr("paused", *map(set, places))
    wait_until(lambda: world.leaders("paused")[0] == JVM or world.elect_preferred("paused"), "it leads again")
    writer.write(300)
    writer.flush()
    assert (len(writer.confirmed), writer.refused) == (1200, [])
    values = world.read("paused", len(places), 1200)
    assert set(values) == writer.confirmed
    assert len(values) == 1200, "nothing twice"
    world.wait_until_equal("paused", places)


def test_a_partition_is_moved_from_a_jvm_broker_to_ours_and_back_by_kafkas_tool(world: World, tmp_path: Path) -> None:
    world.create("moved", [JVM])
    writer = Writer(world, "moved", 1)
    writer.write(2000)
    writer.flush()
    for target in (FIRST, JVM):
        plan = tmp_path / f"to-{target}.json"
        wanted = {"topic": "moved", "partition": 0, "replicas": [target]}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        options = ["--bootstrap-server", f"127.0.0.1:{world.ours[FIRST].port}", "--reassignment-json-file", str(plan)]
        tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", [*options, "--execute"])
        world.wait_for_isr("moved", {target})
        assert world.leaders("moved") == [target]
        writer.write(100)
        writer.flush()
    assert writer.refused == []
    wait_until(lambda: set(world.logs("moved-0")) == {JVM}, "the replica that moved away is deleted")
    assert set(world.read("moved", 1, 2200)) == writer.confirmed


def test_too_few_replicas_in_sync_refuse_what_all_must_confirm(world: World) -> None:
    world.create("two", [FIRST, SECOND], min_insync_replicas="2")
    writer = Writer(world, "two", 1)
    writer.write(10)
    writer.flush()
    world.ours[SECOND].end(signal.SIGTERM)
    wait_until(lambda: world.isr("two") == [{FIRST}], "one is left")
    hasty = Producer({"bootstrap.servers": world.bootstrap, "acks": "all", "retries": 0})
    reported: list[str] = []
    hasty.produce("two", b"x", partition=0, callback=lambda error, _: reported.append(error.name()))
    hasty.flush(PATIENCE_S)
    assert reported == ["NOT_ENOUGH_REPLICAS"]
    world.ours[SECOND].start()
    wait_until(lambda: world.isr("two") == [{FIRST, SECOND}], "both are back")
    writer.write(10)
    writer.flush()
    assert (len(writer.confirmed), writer.refused) == (20, [])


def test_a_broker_that_stops_hands_over_what_it_leads(world: World) -> None:
    world.create("handed", [FIRST, JVM], [FIRST, SECOND])
    assert world.ours[FIRST].end(signal.SIGTERM) == 0
    wait_until(lambda: world.leaders("handed") == [JVM, SECOND], "others lead")
    epoch = json.loads((world.ours[FIRST].data_dir / ".kafka_cleanshutdown").read_text())["brokerEpoch"]
    assert epoch > 0
    world.ours[FIRST].start()
    wait_until(lambda: world.isr("handed") == [{FIRST, JVM}, {FIRST, SECOND}], "it is back")
