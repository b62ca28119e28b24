"""Groups, transactions and a compacted topic go on while JVM brokers become ours and JVM brokers again, with kills."""

from __future__ import annotations

import hashlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as KafkaPartition

from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.interop.test_kraft_coordinators import Copier, Load as Threads, Reader, read_committed
from tests.interop.test_kraft_take_over import (
    NODES,
    PATIENCE_S,
    PLACES,
    SETTINGS as BROKER_SETTINGS,
    OurBroker,
    wait_until,
)
from tests.support import waiting
from tests.support.java_program import JavaProgram
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft"), pytest.mark.timeout(1200)]

SETTINGS = {
    **BROKER_SETTINGS,
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
}
KEYS = 40
COPIER = Path(__file__).parent / "TransactionCopier.java"
#: Features that the cluster is formatted with: transactions of version 2 (KIP-890), Kafka's default, and of version 1.
VERSIONS = {"transactions v2": (), "transactions v1": ("transaction.version=1",)}


class Writer:
    """Writes numbers to `in`, and to `table` under one of `KEYS` keys, with acks=all and idempotence, until `end`."""

    def __init__(self, bootstrap: str) -> None:
        self.confirmed: list[bytes] = []
        self.latest: dict[bytes, int] = {}
        self.refused: list[str] = []
        config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 180_000}
        self._producer = Producer({**config, "topic.metadata.refresh.interval.ms": 1000})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._ends.wait(0.05):
            for _ in range(5):
                self._producer.produce(
                    "in", b"%d " % number + bytes(100), partition=number % len(PLACES), callback=self._reported
                )
                key = b"%d" % (number % KEYS)
                self._producer.produce(
                    "table", b"%d " % number + b" " * 300, key, partition=0, callback=self._reported_table
                )
                number += 1
            self._producer.poll(0)

    def _reported(self, error: object, message: Any) -> None:
        if error is None:
            self.confirmed.append(bytes(message.value()))
        else:
            self.refused.append(str(error))

    def _reported_table(self, error: object, message: Any) -> None:
        if error is None:
            self.latest[bytes(message.key())] = int(message.value().split()[0])
        else:
            self.refused.append(str(error))

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


class JavaCopier(JavaProgram):
    """Kafka's own clients copy `in` to `copied`; they use the version of transactions that the cluster has."""

    def __init__(self, bootstrap: str, protocol: str, directory: Path) -> None:
        super().__init__(COPIER, (bootstrap, "java-copier", "in", "copied", protocol), directory / "java-copier.log")

    @property
    def transactions(self) -> int:
        return len(self.of("COMMITTED"))

    @property
    def failures(self) -> list[str]:
        return [" ".join(row[1:]) for row in self.of("FAILED")]


class Three:
    """Three nodes, each a JVM broker or ours on the same directory."""

    def __init__(self, kraft: KraftCluster, settings: Mapping[str, str] = SETTINGS) -> None:
        self.kraft = kraft
        for node in NODES:
            kraft.start_broker(node, settings)
        self.bootstrap = kraft.bootstrap_servers
        self.ours: dict[int, OurBroker] = {}

    def asked(self, call: Callable[[Cluster], Any]) -> Any:
        client = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": self.bootstrap}))
        try:
            return call(client)
        finally:
            client.close()

    def create(self, name: str, places: Any, **configs: str) -> None:
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": at, "broker_ids": each} for at, each in enumerate(places)],
            "configs": [
                {"name": key, "value": value} for key, value in {"min.insync.replicas": "2", **configs}.items()
            ],
        }
        reported = self.asked(
            lambda client: client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
        )
        assert [int(each.error_code) for each in reported.topics] == [0]

    def wait_until_whole(self) -> None:
        """Return when every replica of every topic is in sync, those of the coordinators too."""

        def is_whole() -> bool:
            topics = self.asked(lambda client: client.any.call(ApiKey.METADATA, (12, 12), topics=None)).topics
            return all(len(part.isr_nodes) == len(NODES) for topic in topics for part in topic.partitions)

        wait_until(is_whole, "all replicas are in sync")

    def give_to_ours(self, node: int) -> None:
        self.ours[node] = OurBroker(self.kraft.brokers[node])

    def give_to_jvm(self, node: int) -> None:
        self.kraft.brokers[node].start()

    def hashes(self, name: str) -> set[str]:
        """Return what the `.log` files of a partition hash to on each node, without what is reserved in the last."""
        found = set()
        for jvm in self.kraft.brokers.values():
            files = sorted((jvm.data_dir / name).glob("*.log"))
            assert files
            found.add(hashlib.sha256(b"".join(each.read_bytes().rstrip(b"\0") for each in files)).hexdigest())
        return found

    def close(self) -> None:
        for each in self.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


@pytest.fixture(params=list(VERSIONS.values()), ids=list(VERSIONS))
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Three]:
    require_reference_kafka()
    config = {"broker.session.timeout.ms": "6000"}
    with KraftCluster(tmp_path, config=config, features=request.param) as kraft:
        made = Three(kraft)
        for name in ("in", "out", "copied"):
            made.create(name, PLACES)
        compacted = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
        made.create("table", PLACES[1:2], **compacted)
        yield made
        made.close()


@pytest.fixture
def java_copier(three: Three, tmp_path: Path) -> Iterator[JavaCopier]:
    made = JavaCopier(three.bootstrap, "consumer", tmp_path)
    yield made
    made.kill()


def test_groups_and_transactions_go_on_through_a_take_over_and_back(three: Three, java_copier: JavaCopier) -> None:
    three.wait_until_whole()
    threads = Threads()
    world: Any = three
    classic = Reader(world, threads, "classic")
    modern = Reader(world, threads, "modern", **{"group.protocol": "consumer"})
    copier = Copier(world, threads, "copier")
    writer = Writer(three.bootstrap)

    def works_on(what: str) -> None:
        """Return when all replicas are in sync, and each client has done something that began after this call."""
        clients = classic, modern, copier, java_copier
        goes_on(what, lambda: (*done_by(*clients), len(writer.confirmed)), clients)
        three.wait_until_whole()
        print(f"{time.time():.1f} {what}: {copier.transactions} transactions, {len(writer.confirmed)} records")

    works_on("JVM brokers alone")
    three.kraft.brokers[2].kill()
    assert not three.kraft.brokers[2]._listens()
    clients = classic, modern, copier, java_copier
    goes_on("without 2", lambda: done_by(*clients), clients)
    three.give_to_jvm(2)
    works_on("after the death of a JVM broker")
    three.kraft.brokers[1].stop()
    three.give_to_ours(1)
    works_on("1 is ours")
    three.kraft.brokers[3].kill()
    three.give_to_ours(3)
    works_on("3 is ours, and found what a killed JVM broker has left")
    three.kraft.brokers[2].stop()
    three.give_to_ours(2)
    works_on("all are ours")
    three.ours[1].end(signal.SIGKILL)
    three.give_to_ours(1)
    works_on("after the death of one of ours")
    for node, how in ((1, signal.SIGTERM), (2, signal.SIGKILL), (3, signal.SIGTERM)):
        three.ours[node].end(how)
        three.give_to_jvm(node)
        works_on(f"{node} is a JVM broker again")
    writer.end()
    assert writer.refused == []
    wait_until(lambda: set(classic.seen) >= set(writer.confirmed) <= set(modern.seen), "both groups have read all")
    copied = read_committed(world, "out", len(writer.confirmed))
    copied_by_java = read_committed(world, "copied", len(writer.confirmed))
    threads.stop()
    java_copier.stop()
    print(f"the copier began again {len(copier.errors)} times: {[str(each) for each in copier.errors]}")
    print(f"{copier.abandoned} clients of the copier were given up")
    for found in (copied, copied_by_java):
        assert Counter(found) == Counter(writer.confirmed), "each once: nothing lost, nothing of a torn transaction"
    assert len(writer.confirmed) == len(set(writer.confirmed))
    assert table(three.bootstrap, max(writer.latest.values())) == writer.latest
    for partition in [f"{topic}-{at}" for topic in ("in", "out", "copied") for at in range(len(PLACES))]:
        wait_until(lambda at=partition: len(three.hashes(at)) == 1, f"replicas of {partition} are equal")


Clients = tuple[Reader, Reader, Copier, JavaCopier]


def done_by(classic: Reader, modern: Reader, copier: Copier, java_copier: JavaCopier) -> tuple[int, ...]:
    """Return how much each client has done so far."""
    return classic.commits, modern.commits, copier.transactions, java_copier.transactions


def goes_on(what: str, done: Callable[[], tuple[int, ...]], clients: Clients) -> None:
    """Return when each has done something that began after this call."""
    before = done()
    try:
        waiting.wait_until(
            lambda: all(late > early + 1 for late, early in zip(done(), before, strict=True)),
            f"all go on, {what}",
            seconds=180,
        )
    finally:
        _, _, copier, java_copier = clients
        failures = [str(each) for each in copier.errors], java_copier.failures
        print(f"{time.time():.1f} {what}: {before} -> {done()}; failures of the copiers: {failures}")


def table(bootstrap: str, last: int) -> dict[bytes, int]:
    """Return the latest value by key of the compacted topic, read up to the value `last`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not used", "enable.auto.commit": False})
    consumer.assign([KafkaPartition("table", 0, 0)])
    found: dict[bytes, int] = {}

    def is_read() -> bool:
        for each in consumer.consume(5000, 0.5):
            if each.error() is None:
                found[bytes(each.key())] = int(each.value().split()[0])
        return last in found.values()

    wait_until(is_read, "the table is read")
    consumer.close()
    return found
