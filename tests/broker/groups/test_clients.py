"""Groups as unmodified clients use them: librdkafka, kafka-python, aiokafka."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from tests.support.reference_kafka import free_port
from tests.support.waiting import wait_until

from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.server.server import Broker

PARTITIONS = 4
RECORDS = 200
DEADLINE_S = 90.0
#: A group forms at once; brokers that are started again are found under the same port.
CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}


class Served:
    """A broker that can be started again at the same address, with a topic `t` of RECORDS records."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.listen = f"127.0.0.1:{free_port()}"
        self.broker = Broker(data_dir=directory, listen=self.listen, config=CONFIG)
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        self.broker.services.topics.create("t", PARTITIONS)
        producer = Producer({"bootstrap.servers": self.address, "log_level": 0})
        for at in range(RECORDS):
            producer.produce("t", key=str(at), value=b"v", partition=at % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0

    @property
    def address(self) -> str:
        return self.broker.bootstrap_servers

    def restart(self) -> None:
        self.broker.close()
        self.broker = Broker(data_dir=self.directory, listen=self.listen, config=CONFIG)

    def consumer(self, group: str, **config: Any) -> Consumer:
        settings = {
            "bootstrap.servers": self.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
        consumer = Consumer(settings)
        consumer.subscribe(["t"])
        return consumer


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    try:
        yield served
    finally:
        served.broker.close()


def partitions(consumer: Consumer) -> set[int]:
    return {partition.partition for partition in consumer.assignment()}


def read(consumer: Consumer, count: int) -> set[tuple[int, int]]:
    """Exactly `count` different records, as (partition, offset)."""
    seen: set[tuple[int, int]] = set()

    def more() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            seen.add((message.partition(), message.offset()))
        return len(seen) >= count

    wait_until(more, f"{count} records", seconds=DEADLINE_S)
    return seen


def test_two_consumers_share_the_partitions_and_take_over_from_each_other(served: Served) -> None:
    first, second = served.consumer("g"), served.consumer("g")
    try:

        def shared() -> bool:
            for consumer in (first, second):
                consumer.poll(0.05)
            mine, theirs = partitions(first), partitions(second)
            return bool(mine) and bool(theirs) and mine | theirs == set(range(PARTITIONS)) and not mine & theirs

        wait_until(shared, "both have partitions, none has the other's", seconds=DEADLINE_S)
        described = served.admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S)
        assert described.state.name == "STABLE"
        assert {(p.topic, p.partition) for m in described.members for p in m.assignment.topic_partitions} == {
            ("t", partition) for partition in range(PARTITIONS)
        }
    finally:
        second.close()
    try:

        def took_over() -> bool:
            first.poll(0.05)
            return partitions(first) == set(range(PARTITIONS))

        wait_until(took_over, "the one that is left has all partitions", seconds=DEADLINE_S)
    finally:
        first.close()
    assert served.admin.describe_consumer_groups(["g"])["g"].result(DEADLINE_S).state.name == "EMPTY"


def test_every_record_is_read_once_and_commits_survive_a_restart(served: Served) -> None:
    consumer = served.consumer("g")
    seen = read(consumer, RECORDS // 2)
    consumer.commit(asynchronous=False)
    consumer.close()
    served.restart()
    consumer = served.consumer("g")
    rest = read(consumer, RECORDS - len(seen))
    consumer.close()
    assert not seen & rest
    assert len(seen | rest) == RECORDS


def test_a_group_lives_on_through_a_restart(served: Served) -> None:
    consumer = served.consumer("g", session_timeout_ms=30_000)
    read(consumer, RECORDS)
    member = consumer.memberid()
    consumer.commit(asynchronous=False)
    served.restart()
    generation = served.broker.services.groups.known_as("g", ClassicGroup).generation

    def committed_again() -> bool:
        consumer.poll(0.1)
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, RECORDS // PARTITIONS)], asynchronous=False)
        except KafkaException:
            return False
        return True

    wait_until(committed_again, "a member of before commits to the broker of after", seconds=DEADLINE_S)
    assert consumer.memberid() == member
    assert served.broker.services.groups.known_as("g", ClassicGroup).generation == generation
    consumer.close()


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(served: Served) -> None:
    first = served.consumer("g", group_instance_id="one", session_timeout_ms=30_000)
    second = served.consumer("g", group_instance_id="two", session_timeout_ms=30_000)

    def settled() -> bool:
        for consumer in (first, second):
            consumer.poll(0.05)
        return len(partitions(first)) == len(partitions(second)) == PARTITIONS // 2

    wait_until(settled, "both have half of the partitions", seconds=DEADLINE_S)
    mine, generation = partitions(second), served.broker.services.groups.known_as("g", ClassicGroup).generation
    second.close()  # a static member does not leave
    second = served.consumer("g", group_instance_id="two", session_timeout_ms=30_000)

    def is_back() -> bool:
        second.poll(0.05)
        return partitions(second) == mine

    wait_until(is_back, "the static member has its partitions again", seconds=DEADLINE_S)
    assert served.broker.services.groups.known_as("g", ClassicGroup).generation == generation
    assert partitions(first) == set(range(PARTITIONS)) - mine
    first.close()
    second.close()


def test_a_consumer_that_is_gone_without_a_word_is_replaced(served: Served) -> None:
    gone = served.consumer("g", group_instance_id="gone")  # static: closing it sends no LeaveGroup
    read(gone, 1)
    gone.close()
    heir = served.consumer("g")
    assert len(read(heir, RECORDS)) == RECORDS
    heir.close()


def test_simple_consumers_commit_without_a_group(served: Served) -> None:
    consumer = Consumer({"bootstrap.servers": served.address, "group.id": "simple", "log_level": 0})
    consumer.assign([TopicPartition("t", 1)])
    consumer.commit(offsets=[TopicPartition("t", 1, 17, metadata="note")], asynchronous=False)
    consumer.close()
    served.restart()
    (committed,) = _committed(served, "simple", [TopicPartition("t", 1)])
    assert (committed.offset, committed.metadata) == (17, "note")


def _committed(served: Served, group: str, asked: list[TopicPartition] | None) -> list[TopicPartition]:
    request = ConsumerGroupTopicPartitions(group, asked)
    result = served.admin.list_consumer_group_offsets([request])[group].result(DEADLINE_S)
    found: list[TopicPartition] = result.topic_partitions
    return found


def test_offsets_are_reset_and_groups_deleted_by_an_administrator(served: Served) -> None:
    consumer = served.consumer("g")
    read(consumer, RECORDS)
    consumer.commit(asynchronous=False)
    with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        served.admin.delete_consumer_groups(["g"])["g"].result(DEADLINE_S)
    consumer.close()
    reset = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 5)])
    served.admin.alter_consumer_group_offsets([reset])["g"].result(DEADLINE_S)
    assert {p.partition: p.offset for p in _committed(served, "g", None)}[0] == 5
    served.admin.delete_consumer_groups(["g"])["g"].result(DEADLINE_S)
    assert not served.admin.list_consumer_groups().result(DEADLINE_S).valid
    with pytest.raises(KafkaException):
        served.admin.delete_consumer_groups(["g"])["g"].result(DEADLINE_S)
    served.restart()
    assert not served.broker.services.groups.classics.groups()


def test_deleting_a_topic_takes_the_commits_for_it(served: Served) -> None:
    consumer = served.consumer("g")
    read(consumer, RECORDS)
    consumer.commit(asynchronous=False)
    consumer.close()
    served.admin.delete_topics(["t"], operation_timeout=DEADLINE_S)["t"].result(DEADLINE_S)
    assert _committed(served, "g", None) == []
    served.restart()
    assert not served.broker.services.groups.commits.committed.groups()


def test_the_admin_client_manages_topics_and_configs(served: Served) -> None:
    admin = served.admin
    created = admin.create_topics([NewTopic("new", 2, 1, config={"retention.ms": "60000"})])
    created["new"].result(DEADLINE_S)
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic("new", 2, 1)])["new"].result(DEADLINE_S)
    with pytest.raises(KafkaException, match="Not a number of type LONG"):
        admin.create_topics([NewTopic("bad", 1, 1, config={"retention.ms": "x"})])["bad"].result(DEADLINE_S)
    admin.create_partitions([NewPartitions("new", 5)])["new"].result(DEADLINE_S)
    assert len(admin.list_topics(timeout=DEADLINE_S).topics["new"].partitions) == 5
    resource = ConfigResource(ConfigResource.Type.TOPIC, "new")
    (described,) = admin.describe_configs([resource]).values()
    config = described.result(DEADLINE_S)["retention.ms"]
    assert (config.value, config.is_default, config.is_read_only) == ("60000", False, False)
    cluster = admin.describe_cluster(include_authorized_operations=True).result(DEADLINE_S)
    assert cluster.cluster_id == served.broker.services.cluster_id
    admin.delete_topics(["new"])["new"].result(DEADLINE_S)
    assert "new" not in admin.list_topics(timeout=DEADLINE_S).topics


@pytest.mark.filterwarnings("ignore:.* is deprecated. Use files:DeprecationWarning")  # as kafka-python is imported
def test_kafka_python_consumers_form_a_group(served: Served) -> None:
    from kafka import KafkaConsumer

    settings = {
        "bootstrap_servers": served.address,
        "group_id": "kp",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 200,
    }
    seen: list[set[tuple[int, int]]] = [set(), set()]
    done = threading.Event()

    def consume(which: int) -> None:
        consumer = KafkaConsumer("t", **settings)
        try:
            while not done.is_set():
                for records in consumer.poll(timeout_ms=100).values():
                    seen[which].update((record.partition, record.offset) for record in records)
            consumer.commit()
        finally:
            consumer.close()

    threads = [threading.Thread(target=consume, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    try:
        wait_until(
            lambda: time.sleep(0.05) or len(seen[0] | seen[1]) == RECORDS, "all records are read", seconds=DEADLINE_S
        )
    finally:
        done.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    offsets = served.broker.services.groups.commits.committed.of_group("kp")
    assert sum(committed.offset for committed in offsets.values()) == RECORDS


def test_aiokafka_consumers_form_a_group(served: Served) -> None:
    from aiokafka import AIOKafkaConsumer

    async def run() -> set[tuple[int, int]]:
        seen: set[tuple[int, int]] = set()
        consumers = [
            AIOKafkaConsumer(
                "t",
                bootstrap_servers=served.address,
                group_id="aio",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=6000,
                heartbeat_interval_ms=200,
            )
            for _ in range(2)
        ]
        for consumer in consumers:
            await consumer.start()
        try:
            while len(seen) < RECORDS:
                for consumer in consumers:
                    for records in (await consumer.getmany(timeout_ms=100)).values():
                        seen.update((record.partition, record.offset) for record in records)
        finally:
            for consumer in consumers:
                await consumer.stop()
        return seen

    seen = asyncio.run(asyncio.wait_for(run(), DEADLINE_S))
    assert len(seen) == RECORDS
