"""Replicas move between the log directories of brokers of ours and of Kafka's, by Kafka's tools and under `kill -9`.

Invariant: what was confirmed is read once and in order, and all replicas hold the same bytes, each in one directory.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stratalog.engine.dirs import format_dir
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions, UnreachableError
from tests.interop.test_kraft_replication import OurMember
from tests.support import waiting
from tests.support.kraft_cluster import KafkaProcess, KraftCluster
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

JVM, OURS = 1, 7
TOPIC = "moving"
#: The first leads the partition of that number.
REPLICAS = [[OURS, JVM], [JVM, OURS], [OURS]]
REPLICA_NOT_AVAILABLE, LOG_DIR_NOT_FOUND = 9, 57
#: As the topic is created: with as many replicas of each partition.
CREATED = [[OURS, JVM], [JVM, OURS], [OURS, JVM]]
#: Bytes per second at which copies grow, so that a kill meets one.
SLOW, FAST = "400000", "100000000"
PATIENCE_S = 120.0


def wait_until(condition: Any, what: str) -> None:
    waiting.wait_until(condition, what, seconds=PATIENCE_S, every=0.1)


def two_dirs(home: Path) -> list[Path]:
    return [home / "first", home / "second"]


class Member(OurMember):
    """A broker of ours with two directories."""

    def __init__(self, cluster: KraftCluster, node: int, config: Mapping[str, str]) -> None:
        home = cluster.directory / f"directories-{node}"
        home.mkdir()
        self.dirs = two_dirs(home)
        for each in self.dirs:
            format_dir(each, cluster_id=cluster.cluster_id, node_id=node)
        super().__init__(cluster, node, {"log.dirs": ",".join(map(str, self.dirs)), **config})


class World:
    """One controller, one JVM broker and one of ours, each with two directories."""

    def __init__(self, cluster: KraftCluster) -> None:
        self.cluster = cluster
        config = {
            "replica.lag.time.max.ms": "5000",
            "log.segment.bytes": "1048576",
            "replica.alter.log.dirs.io.max.bytes.per.second": FAST,
        }
        jvm_dirs = two_dirs(cluster.directory / f"broker-{JVM}")
        self.jvm: KafkaProcess = cluster.start_broker(JVM, {**config, "log.dirs": ",".join(map(str, jvm_dirs))})
        self.ours = Member(cluster, OURS, config)
        self.dirs = {JVM: jvm_dirs, OURS: self.ours.dirs}
        self.servers = {JVM: self.jvm.address, OURS: f"127.0.0.1:{self.ours.port}"}
        self.bootstrap = ",".join(self.servers.values())

    def create(self) -> None:
        topic = {
            "name": TOPIC,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": at, "broker_ids": each} for at, each in enumerate(CREATED)],
            "configs": [],
        }
        reported = self.call(JVM, ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
        assert [int(each.error_code) for each in reported.topics] == [0]
        alone = {"name": TOPIC, "partitions": [{"partition_index": 2, "replicas": REPLICAS[2]}]}
        reassigned = self.call(JVM, ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 0), topics=[alone], timeout_ms=20_000)
        assert int(reassigned.error_code) == 0
        wait_until(lambda: self.isr() == [set(each) for each in REPLICAS], "all replicas are there")

    def call(self, node: int, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.servers[node]})) as cluster:
            return cluster.any.call(key, versions, **fields)

    def partitions(self) -> list[Any]:
        try:
            reported = self.call(JVM, ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics[0]
        except UnreachableError:
            reported = self.call(OURS, ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics[0]
        return sorted(reported.partitions, key=lambda each: each.partition_index)

    def isr(self) -> list[set[int]]:
        return [set(map(int, each.isr_nodes)) for each in self.partitions()]

    def places(self, node: int) -> dict[int, list[tuple[Path, bool]]]:
        """Return where a broker says that its replicas are: directory, and whether it is a copy."""
        answer = self.call(node, ApiKey.DESCRIBE_LOG_DIRS, (4, 4), topics=None)
        found: dict[int, list[tuple[Path, bool]]] = {}
        for directory in answer.results:
            for topic in directory.topics:
                if topic.name == TOPIC:
                    for each in topic.partitions:
                        place = Path(directory.log_dir), bool(each.is_future_key)
                        found.setdefault(int(each.partition_index), []).append(place)
        return found

    def place(self, node: int, partition: int) -> Path:
        (found,) = [path for path, is_copy in self.places(node)[partition] if not is_copy]
        return found

    def other(self, node: int, partition: int) -> Path:
        (found,) = [path for path in self.dirs[node] if path != self.place(node, partition)]
        return found

    def move(self, node: int, partition: int, directory: Path, topic: str = TOPIC) -> int:
        """Have a broker move a replica; return its error code."""
        dirs = [{"path": str(directory), "topics": [{"name": topic, "partitions": [partition]}]}]
        (answer,) = self.call(node, ApiKey.ALTER_REPLICA_LOG_DIRS, (2, 2), dirs=dirs).results
        return int(answer.partitions[0].error_code)

    def are_at(self, wanted: dict[tuple[int, int], Path]) -> bool:
        return all(self.places(node).get(partition) == [(path, False)] for (node, partition), path in wanted.items())

    def limit(self, rate: str) -> None:
        name = "replica.alter.log.dirs.io.max.bytes.per.second"
        changed = {"name": name, "config_operation": 0, "value": rate}
        resource = {"resource_type": 4, "resource_name": str(OURS), "configs": [changed]}
        answer = self.call(OURS, ApiKey.INCREMENTAL_ALTER_CONFIGS, (1, 1), resources=[resource], validate_only=False)
        assert [int(each.error_code) for each in answer.responses] == [0]

    def recorded(self, node: int) -> dict[int, Path]:
        """Return where the controller has a broker's replicas, by the newest metadata on our disk."""
        records = self.ours_metadata()
        ids = {read_id(path): path for path in self.dirs[node]}
        return {number: ids[directories[node]] for number, directories in records.items() if node in directories}

    def ours_metadata(self) -> dict[int, dict[int, str]]:
        log = self.dirs[OURS][0] / "__cluster_metadata-0"
        printed = tool(
            "org.apache.kafka.tools.DumpLogSegments",
            ["--cluster-metadata-decoder", "--files", ",".join(str(each) for each in sorted(log.glob("*.log")))],
        )
        found: dict[int, dict[int, str]] = {}
        replicas: dict[int, list[int]] = {}
        for line in printed.splitlines():
            at = line.find("payload: ")
            if at < 0:
                continue
            record = json.loads(line[at + len("payload: ") :])
            if record["type"] not in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"):
                continue
            data = record["data"]
            number = data["partitionId"]
            replicas[number] = data.get("replicas") or replicas.get(number, [])
            if data.get("directories"):
                found[number] = dict(zip(replicas[number], data["directories"], strict=True))
        return found

    def logs(self, partition: int) -> dict[int, str]:
        """Return what the `.log` files of each replica hash to; ours are written into space that is reserved."""
        found = {}
        for node, dirs in self.dirs.items():
            homes = [each / f"{TOPIC}-{partition}" for each in dirs if (each / f"{TOPIC}-{partition}").exists()]
            if homes:
                (home,) = homes
                files = sorted(home.glob("*.log"))
                found[node] = hashlib.sha256(b"".join(each.read_bytes().rstrip(b"\0") for each in files)).hexdigest()
        return found

    def are_equal(self) -> bool:
        for partition, replicas in enumerate(REPLICAS):
            logs = self.logs(partition)
            if set(logs) != set(replicas) or len(set(logs.values())) != 1:
                return False
        return True


def read_id(directory: Path) -> str:
    lines = (directory / "meta.properties").read_text().splitlines()
    (found,) = [line.partition("=")[2] for line in lines if line.startswith("directory.id=")]
    return found


class Load:
    """Writes numbers to each partition, each confirmed by all in sync, until it is ended."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.sent = [0] * len(REPLICAS)
        self.failed: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "socket.timeout.ms": 10_000,
                "message.timeout.ms": 120_000,
            }
        )
        while not self._over.wait(0.01):
            for partition in range(len(REPLICAS)):
                value = b"%08d" % self.sent[partition] + bytes(2000)
                producer.produce(TOPIC, value, partition=partition, callback=self._delivered)
                self.sent[partition] += 1
            producer.poll(0)
        left = producer.flush(PATIENCE_S)
        if left:
            self.failed.append(f"{left} are not confirmed")

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def read(bootstrap: str, partition: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(min(1000, count - len(found)), PATIENCE_S)
        assert messages, f"{len(found)} of {count} came"
        assert not [each.error() for each in messages if each.error() is not None]
        found += [int(bytes(each.value() or b"")[:8]) for each in messages]
    consumer.close()
    return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    require_reference_kafka()
    with KraftCluster(tmp_path) as cluster:
        made = World(cluster)
        try:
            made.create()
            yield made
        finally:
            if made.ours.process.poll() is None:
                made.ours.end(signal.SIGKILL)


def move_all_by_the_tool(world: World, tmp_path: Path) -> dict[tuple[int, int], Path]:
    wanted = {(node, at): world.other(node, at) for at, nodes in enumerate(REPLICAS) for node in nodes}
    plan = [
        {"topic": TOPIC, "partition": at, "replicas": nodes, "log_dirs": [str(wanted[node, at]) for node in nodes]}
        for at, nodes in enumerate(REPLICAS)
    ]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": plan}))
    name = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    common = ["--bootstrap-server", world.bootstrap, "--reassignment-json-file", str(file)]
    said = tool(name, [*common, "--execute"])
    assert said.count("Successfully started moving log directory") == len(wanted), said
    wait_until(lambda: world.are_at(wanted), "all replicas are in the other directories")
    said = tool(name, [*common, "--verify"])
    assert said.count("completed successfully") >= len(wanted), said
    return wanted


def test_replicas_move_under_load_and_kills(world: World, tmp_path: Path) -> None:
    assert world.move(OURS, 0, tmp_path / "nowhere") == world.move(JVM, 0, tmp_path / "nowhere") == LOG_DIR_NOT_FOUND
    assert world.move(JVM, 2, world.dirs[JVM][0]) == REPLICA_NOT_AVAILABLE
    load = Load(world.bootstrap)
    try:
        wait_until(lambda: min(load.sent) > 1000, "there is something to copy")
        wanted = move_all_by_the_tool(world, tmp_path)
        wait_until(
            lambda: all(world.recorded(node)[at] == path for (node, at), path in wanted.items()),
            "the controller has all directories",
        )

        world.limit(SLOW)
        there = {(OURS, at): world.other(OURS, at) for at in range(len(REPLICAS))}
        for (node, at), path in there.items():
            assert world.move(node, at, path) == 0
        wait_until(lambda: any(is_copy for each in world.places(OURS).values() for _, is_copy in each), "copies grow")
        world.ours.end(signal.SIGKILL)
        world.ours.start()
        world.limit(FAST)
        wait_until(lambda: world.are_at(there), "the moves go on after kill -9")
        wait_until(lambda: world.isr() == [set(each) for each in REPLICAS], "all are in sync")

        world.limit(SLOW)
        assert world.move(OURS, 0, world.other(OURS, 0)) == 0
        assert world.move(OURS, 0, world.place(OURS, 0)) == 0
        assert world.places(OURS)[0] == [(there[OURS, 0], False)], "the move was undone"
        world.limit(FAST)

        there = {(OURS, at): world.other(OURS, at) for at in range(len(REPLICAS))}
        for (node, at), path in there.items():
            assert world.move(node, at, path) == 0
        world.jvm.kill()
        world.jvm.start()
        wait_until(lambda: world.are_at(there), "the moves end while the leader or follower is away")
        wait_until(lambda: world.isr() == [set(each) for each in REPLICAS], "all are in sync again")
    finally:
        load.end()
    assert load.failed == []
    wait_until(world.are_equal, "all replicas hold the same bytes")
    wait_until(lambda: all(world.recorded(OURS)[at] == path for (_, at), path in there.items()), "the controller knows")
    for partition, count in enumerate(load.sent):
        assert read(world.bootstrap, partition, count) == list(range(count))


def test_a_replica_to_come_is_created_in_the_directory_that_it_was_asked_to(world: World) -> None:
    for node, other in ((JVM, OURS), (OURS, JVM)):
        for directory in world.dirs[node]:
            name = f"new-{node}-{directory.name}"
            add_replica(world, name, other, node, directory)


def add_replica(world: World, name: str, first: int, second: int, directory: Path) -> None:
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "configs": []}
    topic["assignments"] = [{"partition_index": 0, "broker_ids": [first]}]
    world.call(JVM, ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
    wait_until(lambda: world.move(second, 0, directory, name) == REPLICA_NOT_AVAILABLE, f"{second} knows the topic")
    added = {"name": name, "partitions": [{"partition_index": 0, "replicas": [first, second]}]}
    world.call(JVM, ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 0), topics=[added], timeout_ms=20_000)
    wait_until(lambda: list(directory.parent.glob(f"*/{name}-0*")) == [directory / f"{name}-0"], f"{name} is there")
