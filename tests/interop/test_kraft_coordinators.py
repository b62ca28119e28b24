"""Groups and transactions go on while their coordinator moves between brokers of ours and of Kafka's, by kill -9."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition as KafkaPartition

from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.interop.test_kraft_replication import FIRST, JVM, PATIENCE_S, SECOND, World, Writer, wait_until
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

GROUPS, IDS = "__consumer_offsets", "__transaction_state"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
}
IN_PARTITIONS = 3
#: librdkafka waits for a coordinator that it remembers and that is dead; the next producer does not remember it.
COPIER_S = 15.0
PLACES = ([FIRST, JVM, SECOND], [SECOND, FIRST, JVM], [JVM, SECOND, FIRST])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_reference_kafka()
    with KraftCluster(tmp_path_factory.mktemp("kraft")) as cluster:
        made = World(cluster, SETTINGS)
        yield made
        made.client.close()
        for each in made.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


class Load:
    """Threads that go on until they are asked to stop; the first failure of any is raised then."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        for failure in self._failures:
            raise failure


class Reader:
    """A member of a group that commits what it has read; commits that were answered must stay."""

    def __init__(self, world: World, load: Load, group: str, **config: str) -> None:
        self._load = load
        self.seen: Counter[bytes] = Counter()
        self.acknowledged: dict[int, int] = {}
        self.commits = 0
        self._config = {"bootstrap.servers": world.bootstrap, "group.id": group, "enable.auto.commit": False}
        self._config |= {"auto.offset.reset": "earliest", **config}
        load.start(self._read)
        load.start(self._watch)

    def _read(self) -> None:
        consumer = Consumer(self._config)
        consumer.subscribe(["in"])
        while not self._load.stopping.is_set():
            messages = [each for each in consumer.consume(100, 0.2) if each.error() is None]
            self.seen.update(bytes(each.value()) for each in messages)
            if not messages:
                continue
            with suppress(KafkaException):  # it is tried again with the next records
                for done in consumer.commit(asynchronous=False) or ():
                    if done.error is None:
                        self.acknowledged[done.partition] = done.offset
                        self.commits += 1
        consumer.close()

    def _watch(self) -> None:
        """Ask again and again what is committed: never less than before, nor than what was answered before."""
        watcher = Consumer({key: value for key, value in self._config.items() if key != "group.protocol"})
        wanted = [KafkaPartition("in", number) for number in range(IN_PARTITIONS)]
        known: dict[int, int] = {}
        while not self._load.stopping.is_set():
            floor = dict(self.acknowledged)
            with suppress(KafkaException):
                for found in watcher.committed(wanted, timeout=5):
                    if found.error is not None:
                        continue
                    at_least = max(known.get(found.partition, -1001), floor.get(found.partition, -1001))
                    assert found.offset >= at_least, f"committed {found.offset} of {found.partition}, was {at_least}"
                    known[found.partition] = found.offset
            time.sleep(0.05)
        watcher.close()


class Copier:
    """Copies `in` to `out`, exactly once, with transactions that hold its commits too.

    A producer of librdkafka 2.16 may stop for good when a coordinator dies: it is given the dead one, as the cluster
    does not know yet, then sends nothing more, and the call never returns, whatever its time limit. It does so where
    all brokers are Kafka's too. So a client whose call does not return is left alone, and the next one fences it.
    """

    def __init__(self, world: World, load: Load, name: str) -> None:
        self._world, self._load, self._name = world, load, name
        self.transactions = 0
        self.errors: list[KafkaException] = []
        #: Clients that were given up.
        self.abandoned = 0
        load.start(self._run)

    def _run(self) -> None:
        while not self._load.stopping.is_set():
            client = _CopyingClient(self._world, self._load, self._name)
            while not client.is_over.wait(0.1):
                if client.is_stuck:
                    self.abandoned += 1
                    client.abandon()
                    break
                self.transactions += client.take_transactions()
            self.transactions += client.take_transactions()
            error = client.error
            if isinstance(error, KafkaException):  # the next one fences this one
                self.errors.append(error)
            elif error is not None:
                raise error


class _CopyingClient:
    """A producer and a consumer, on a thread that is not waited for."""

    def __init__(self, world: World, load: Load, name: str) -> None:
        self._load, self._name = load, name
        self._servers = {"bootstrap.servers": world.bootstrap}
        config = {"group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**self._servers, **config, "isolation.level": "read_committed"})
        self._called_s: float | None = None
        self._is_abandoned = self._has_left = False
        self._leaving = threading.Lock()
        self._committed = 0
        self._taken = 0
        self.error: BaseException | None = None
        self.is_over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def is_stuck(self) -> bool:
        """Whether a call has not returned long after its time limit."""
        called_s = self._called_s
        return called_s is not None and time.monotonic() - called_s > 3 * COPIER_S

    def take_transactions(self) -> int:
        """Return how many were committed since the last call."""
        committed = self._committed
        new, self._taken = committed - self._taken, committed
        return new

    def abandon(self) -> None:
        """Leave the group, so that the next one gets its partitions."""
        self._is_abandoned = True
        self._leave()

    def _leave(self) -> None:
        with self._leaving:
            if not self._has_left:
                self._has_left = True
                self._consumer.close()

    def _run(self) -> None:
        try:
            self._copy()
        except BaseException as error:
            self.error = error
        finally:
            self._leave()
            self.is_over.set()

    @contextmanager
    def _calling(self) -> Iterator[None]:
        self._called_s = time.monotonic()
        try:
            yield
        finally:
            self._called_s = None

    def _copy(self) -> None:
        producer = Producer({**self._servers, "transactional.id": self._name, "transaction.timeout.ms": 20_000})
        with self._calling():
            producer.init_transactions(COPIER_S)
        self._consumer.subscribe(["in"])
        while not (self._load.stopping.is_set() or self._is_abandoned):
            messages = [each for each in self._consumer.consume(500, 0.2) if each.error() is None]
            if messages:
                self._transact(producer, messages)

    def _transact(self, producer: Producer, messages: list[object]) -> None:
        producer.begin_transaction()
        for each in messages:
            producer.produce("out", each.value(), partition=each.partition())  # type: ignore[attr-defined]
        read = self._consumer.position(self._consumer.assignment())
        group = self._consumer.consumer_group_metadata()
        with self._calling():
            producer.send_offsets_to_transaction(read, group, COPIER_S)
        with self._calling():
            producer.commit_transaction(COPIER_S)
        self._committed += 1


def lead(world: World, topic: str, replicas: list[int]) -> None:
    """Let the first of these lead a topic's only partition."""
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
    world.client.any.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 0), timeout=20_000, topics=wanted)
    world.wait_for_isr(topic, set(replicas))

    def elected() -> bool:
        asked = [{"topic": topic, "partitions": [0]}]
        world.client.any.call(ApiKey.ELECT_LEADERS, (2, 2), election_type=0, topic_partitions=asked, timeout=20_000)
        return world.leaders(topic) == [replicas[0]]

    wait_until(elected, f"{replicas[0]} leads {topic}")


def address_of(world: World, node: int) -> str:
    return world.cluster.bootstrap_servers if node == JVM else f"127.0.0.1:{world.ours[node].port}"


def read_committed(world: World, topic: str, count: int) -> list[bytes]:
    """Read a topic from its start, with what open transactions hold back left out."""
    config = {"group.id": "not used", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": world.bootstrap, **config})
    consumer.assign([KafkaPartition(topic, number, 0) for number in range(IN_PARTITIONS)])
    values: list[bytes] = []

    def read() -> int:
        values.extend(bytes(each.value()) for each in consumer.consume(1000, 0.2) if each.error() is None)
        return len(values)

    wait_until(lambda: read() >= count, f"{count} records of {topic} are read")
    read()
    consumer.close()
    return values


def test_groups_and_transactions_go_on_while_their_coordinator_is_killed(world: World) -> None:
    world.create("in", *PLACES, min_insync_replicas="2")
    world.create("out", *PLACES, min_insync_replicas="2")
    load = Load()
    classic = Reader(world, load, "classic")
    modern = Reader(world, load, "modern", **{"group.protocol": "consumer"})
    copier = Copier(world, load, "copier")
    writer = Writer(world, "in", IN_PARTITIONS)
    writer.write(300)
    writer.flush()
    wait_until(lambda: copier.transactions and classic.commits and modern.commits, "all of them work")

    def works_on() -> None:
        """Return when each of them has got something done that began after this call."""
        before = classic.commits, modern.commits, copier.transactions

        def all_did() -> bool:
            writer.write(30)
            writer.flush()
            time.sleep(0.05)
            now = classic.commits, modern.commits, copier.transactions
            print(f"{time.time():.1f} {now} after {before}; {copier.errors[-1:]}")
            return all(late > early + 1 for late, early in zip(now, before, strict=True))

        wait_until(all_did, "all of them go on")

    order = [FIRST, JVM, SECOND]
    for topic in (GROUPS, IDS):
        lead(world, topic, order)
    works_on()
    for node, restart in (
        (FIRST, world.ours[FIRST].start),
        (JVM, world.cluster.brokers[JVM].start),
        (SECOND, world.ours[SECOND].start),
    ):
        for topic in (GROUPS, IDS):
            lead(world, topic, order)
        assert world.leaders(GROUPS) == world.leaders(IDS) == [node]
        world.client.close()
        world.client = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": address_of(world, order[1])}))
        if node == JVM:
            world.cluster.brokers[JVM].kill()
        else:
            world.ours[node].end(signal.SIGKILL)
        order = [*order[1:], node]
        works_on()
        restart()
        for topic in (GROUPS, IDS, "in", "out"):
            world.wait_for_isr(topic, *[{FIRST, SECOND, JVM}] * (1 if topic in (GROUPS, IDS) else IN_PARTITIONS))
    works_on()
    writer.flush()
    assert writer.refused == []
    copied = read_committed(world, "out", len(writer.confirmed))
    wait_until(lambda: set(classic.seen) >= writer.confirmed <= set(modern.seen), "both groups have read all")
    load.stop()
    assert Counter(copied) == Counter(writer.confirmed), "each once: nothing lost, nothing of a torn transaction"
