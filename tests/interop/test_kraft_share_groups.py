"""Kafka's share consumers go on in a cluster while leaders and coordinators are killed, be they ours or Kafka's."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as KafkaPartition

from stratalog.cli.groups.share_offsets import share_offsets
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions, RefusedError, UnreachableError
from tests.interop.test_kraft_coordinators import GROUPS, PLACES, SETTINGS, address_of, lead
from tests.interop.test_kraft_replication import FIRST, JVM, SECOND, World, wait_until
from tests.interop.test_share_consumers import GROUP, PARTITIONS, TOPIC, Place, Reader
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

STATES = "__share_group_state"
COMMAND = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
GROUP_CONFIG = 32
DEAD_LETTERS = "dlq.readers"
PIECE = 300
#: `max.poll.records` of the readers.
POLLED_MAX = 100


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    require_reference_kafka()
    config = {
        **SETTINGS,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "3",
        "share.coordinator.state.topic.min.isr": "2",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "errors.deadletterqueue.auto.create.topics.enable": "true",
    }
    with KraftCluster(tmp_path / "kraft", config=config) as cluster:
        made = World(cluster, config)
        yield made
        made.client.close()
        for each in made.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


@pytest.fixture
def started(world: World, tmp_path: Path) -> Iterator[Callable[[], Reader]]:
    readers: list[Reader] = []

    def start() -> Reader:
        readers.append(Reader(world.bootstrap, "explicit", tmp_path, f"reader-{len(readers)}"))
        return readers[-1]

    yield start
    for reader in readers:
        reader.kill()


def send(world: World, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": world.bootstrap, "enable.idempotence": True, "log_level": 3})
    for number in numbers:
        producer.produce(TOPIC, f"value {number}", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def places(count: int) -> set[Place]:
    return {(number % PARTITIONS, number // PARTITIONS) for number in range(count)}


def configure(world: World) -> None:
    """Have the group begin with the first record, and what it rejects reported in a topic."""
    wanted = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": DEAD_LETTERS}
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in wanted.items()]
    resources = [{"resource_type": GROUP_CONFIG, "resource_name": GROUP, "configs": configs}]
    reported = world.client.any.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, (1, 1), resources=resources, validate_only=False)
    assert [int(each.error_code) for each in reported.responses] == [0]


def lags(world: World) -> dict[int, int | None]:
    """Return how many records of each partition are not done."""
    try:
        with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": world.bootstrap})) as cluster:
            return {key[1]: each.lag for key, each in share_offsets(cluster, GROUP).items()}
    except (RefusedError, UnreachableError):  # a coordinator is elected
        return {}


def reported_dead(world: World) -> set[Place]:
    """Return the records that the dead-letter topic tells of; a leader that was killed may have reported some twice."""
    consumer = Consumer({"bootstrap.servers": world.bootstrap, "group.id": "not used", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(KafkaPartition(DEAD_LETTERS, 0), timeout=60)
    consumer.assign([KafkaPartition(DEAD_LETTERS, 0, 0)])
    found: set[Place] = set()
    offset = -1
    while offset < end - 1:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        offset = message.offset() or 0
        headers = dict(message.headers() or ())
        found.add((int(headers["__dlq.errors.partition"] or b""), int(headers["__dlq.errors.offset"] or b"")))
    consumer.close()
    return found


def test_records_that_were_accepted_do_not_come_again_over_kills(world: World, started: Callable[[], Reader]) -> None:
    world.create(TOPIC, *PLACES)
    configure(world)
    readers = [started(), started()]

    def said() -> Counter[Place]:
        return Counter(place for reader in readers for place in reader.said("ACCEPT", "REJECT"))

    def got() -> set[Place]:
        return {place for reader in readers for place, _ in reader.got()}

    def all_are_done(count: int) -> None:
        """Of those that were refused while brokers were dead, some may have been kept: they do not come again."""
        wait_until(lambda: got() >= places(count), "all records were handed out")
        found: dict[int, int | None] = {}

        def are_done() -> bool:
            found.update(lags(world))
            return found == dict.fromkeys(range(PARTITIONS), 0)

        try:
            wait_until(are_done, "all records are done")
        except AssertionError as error:
            raise AssertionError(f"{found}; {[reader.lines[-3:] for reader in readers]}") from error

    def some_are_done(behind: int) -> None:
        wait_until(lambda: set(said()) - places(behind), "some of the new records are done")

    send(world, range(PIECE))
    sent = PIECE
    all_are_done(sent)
    order = [FIRST, JVM, SECOND]
    for node, restart in (
        (FIRST, world.ours[FIRST].start),
        (JVM, world.cluster.brokers[JVM].start),
        (SECOND, world.ours[SECOND].start),
    ):
        for topic in (GROUPS, STATES):
            lead(world, topic, order)
        send(world, range(sent, sent + PIECE))
        some_are_done(sent)
        sent += PIECE
        world.client.close()
        world.client = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": address_of(world, order[1])}))
        if node == JVM:
            world.cluster.brokers[JVM].kill()
        else:
            world.ours[node].end(signal.SIGKILL)
        order = [*order[1:], node]
        send(world, range(sent, sent + PIECE))
        sent += PIECE
        all_are_done(sent)
        restart()
        for topic in (GROUPS, STATES):
            world.wait_for_isr(topic, {FIRST, SECOND, JVM})
        world.wait_for_isr(TOPIC, *[{FIRST, SECOND, JVM}] * PARTITIONS)
        # leadership goes back while members read and answer
        send(world, range(sent, sent + PIECE))
        sent += PIECE
        wait_until(
            lambda: world.elect_preferred(TOPIC) or world.leaders(TOPIC) == [each[0] for each in PLACES],
            "the preferred replicas lead",
        )
        all_are_done(sent)
    for reader in readers:
        reader.stop()
    printed = tool(COMMAND, ["--bootstrap-server", world.bootstrap, "--describe", "--group", GROUP, "--verbose"])
    assert len([line for line in printed.splitlines() if line.split()[:2] == [GROUP, TOPIC]]) == PARTITIONS, printed
    assert max(said().values()) == 1
    refused = sum(len(reader.of("REFUSED")) for reader in readers)
    assert len(said()) + refused * POLLED_MAX >= sent, "what is done without an answer was in a request that failed"
    world.wait_until_equal(STATES, [[FIRST, JVM, SECOND]])
    rejected = {place for reader in readers for place in reader.said("REJECT")}
    assert rejected
    assert rejected <= reported_dead(world)
