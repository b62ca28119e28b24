"""Groups of the consumer protocol (KIP-848): Kafka's consumer and librdkafka's, and directories that change hands."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import stratalog
from stratalog.broker.metadata.store import MetadataStore
from stratalog.wire.api_keys import ApiKey
from tests.broker.groups.consumer_cases import CONFIG, Talk, find_coordinator
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka, tool
from tests.support.wire import Wire

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PARTITIONS = 6
TOPIC = "t"
WAIT_S = 60.0


def fill(broker: stratalog.Broker, count: int = 600) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(TOPIC, value=b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def consumer(broker: stratalog.Broker, group: str, protocol: str = "consumer", **more: str) -> Consumer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "group.protocol": protocol}
    settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": "false", "log_level": "3"}
    made = Consumer({**settings, **{name.replace("_", "."): value for name, value in more.items()}})
    made.subscribe([TOPIC])
    return made


def mine(one: Consumer) -> set[int]:
    return {part.partition for part in one.assignment()}


def eventually(done: Callable[[], bool], *consumers: Consumer) -> list[bytes]:
    """Poll until it is so; what was read until then."""
    read: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for one in consumers:
            message = one.poll(0.05)
            if message is not None and message.error() is None:
                value = message.value()
                read.append(value if isinstance(value, bytes) else b"")
        if done():
            return read
    raise TimeoutError([sorted(mine(one)) for one in consumers])


# --- clients ----------------------------------------------------------------------------------------------------------


def test_kafkas_consumer_reads_all_and_is_described(broker: stratalog.Broker) -> None:
    require_reference_kafka()
    fill(broker)
    address = ["--bootstrap-server", broker.bootstrap_servers]
    printed = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        [
            *address,
            *("--topic", TOPIC, "--from-beginning", "--max-messages", "600", "--timeout-ms", "30000"),
            *("--consumer-property", "group.protocol=consumer", "--consumer-property", "group.id=java"),
        ],
    )
    assert {line for line in printed.splitlines() if line.isdecimal()} == {str(number) for number in range(600)}
    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    reported = tool(groups, [*address, "--describe", "--group", "java"])
    assert len([line for line in reported.splitlines() if line.startswith("java ")]) == PARTITIONS
    listed = tool(groups, [*address, "--list", "--type", "consumer", "--state"])
    assert ["java", "Consumer", "Empty"] in [line.split() for line in listed.splitlines()]


def test_consumers_of_librdkafka_share_and_take_over(broker: stratalog.Broker) -> None:
    fill(broker)
    first = consumer(broker, "g")
    read = eventually(lambda: len(mine(first)) == PARTITIONS, first)
    second = consumer(broker, "g", client_id="second")
    read += eventually(lambda: len(mine(first)) == len(mine(second)) == PARTITIONS // 2, first, second)
    assert not mine(first) & mine(second)
    while len(set(read)) < 600:
        read += eventually(lambda: True, first, second)
    for one in (first, second):
        one.commit(asynchronous=False)
    committed = first.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    assert [part.offset for part in committed] == [100] * PARTITIONS
    second.close()
    eventually(lambda: len(mine(first)) == PARTITIONS, first)
    first.close()


def test_members_of_both_protocols_share_a_group_until_the_last_new_one_goes(broker: stratalog.Broker) -> None:
    fill(broker)
    classic = consumer(broker, "g", "classic", partition_assignment_strategy="cooperative-sticky")
    eventually(lambda: len(mine(classic)) == PARTITIONS, classic)
    new = consumer(broker, "g")
    eventually(lambda: len(mine(classic)) == len(mine(new)) == PARTITIONS // 2, classic, new)
    assert not mine(classic) & mine(new)
    with Wire(broker.bootstrap_servers) as wire:
        (listed,) = wire.call(ApiKey.LIST_GROUPS, 5).groups
        assert listed.group_type == "consumer"
        new.close()
        eventually(lambda: len(mine(classic)) == PARTITIONS, classic)
        (listed,) = wire.call(ApiKey.LIST_GROUPS, 5).groups
        assert listed.group_type == "classic"
    classic.close()


# --- directories ------------------------------------------------------------------------------------------------------


def described(talk: Talk) -> Any:
    """All that can be seen of the group."""
    groups = talk.wire.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("g",))
    name = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}
    fetched = talk.wire.call(ApiKey.OFFSET_FETCH, 9, groups=[name], require_stable=True)
    return talk.plain(groups), talk.plain(fetched)


def hand_over(source: Path, target: Path) -> None:
    """Give the directories of all partitions to another broker, which is down as well."""
    for directory in source.iterdir():
        if directory.is_dir() and directory.name.rpartition("-")[2].isdecimal() and "metadata" not in directory.name:
            shutil.rmtree(target / directory.name, ignore_errors=True)
            shutil.copytree(directory, target / directory.name)


def know_topics_of(wire: Wire, data_dir: Path) -> None:
    """Make our store know Kafka's topics, by their ids."""
    store = MetadataStore.open(data_dir)
    for topic in wire.call(ApiKey.METADATA, 12, topics=None).topics:
        store.create_topic(topic.name, len(topic.partitions), created_ms=0, topic_id=topic.topic_id)
    store.close()


def test_a_group_goes_from_kafka_to_us_and_back(tmp_path: Path) -> None:
    require_reference_kafka()
    ours = tmp_path / "ours"
    with ReferenceKafka(tmp_path / "kafka", config=CONFIG) as kafka:
        with Wire(kafka.bootstrap_servers) as wire:
            topics = [{"name": name, "num_partitions": 3, "replication_factor": 1} for name in ("three", "tree")]
            wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
            find_coordinator(wire)
            talk = Talk(wire)
            talk.join("a joins", "g", "a", ["three"], instance_id="i", rack_id="r")
            talk.beat("b joins", "g", "b", 0, owned={}, timeout=60_000, subscribed_topic_regex="t.*ree")
            talk.until("b gets some", "g", "b", 2, lambda answer: answer.assignment is not None)
            talk.commit("a commits", "g", "a", 2, 7)
            seen = described(talk)
            know_topics_of(wire, ours)
        kafka.stop()
        hand_over(kafka.data_dir, ours)
        with stratalog.Broker(data_dir=ours, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
            talk = Talk(wire)
            assert described(talk) == seen
            a = talk.beat("a goes on", "g", "a", 2, instance_id="i", owned={"three": [0, 1, 2]})
            assert a.error_code == 0
            talk.beat("a gives up", "g", "a", 2, instance_id="i", owned={})
            talk.join("c joins", "g", "c", ["tree"], server_assignor="range")
            first = talk.classic_join("d asks", "g", "", ["three"])
            assert talk.classic_join("d joins", "g", first.member_id, ["three"]).error_code == 0
            talk.beat("b leaves", "g", "b", -1)
            talk.commit("c commits", "g", "c", 4, 9, topic="tree")
            seen = described(talk)
        hand_over(ours, kafka.data_dir)
        kafka.start()
        with Wire(kafka.bootstrap_servers) as wire:
            find_coordinator(wire)
            talk = Talk(wire)
            talk.made_up.add(first.member_id)
            assert described(talk) == seen
            assert (
                talk.beat(
                    "c goes on", "g", "c", 0, owned={}, timeout=60_000, subscribed_topic_names=["tree"]
                ).error_code
                == 0
            )
            assert talk.beat("a goes for good", "g", "a", -1, instance_id="i").error_code == 0
    log = (tmp_path / "kafka" / "kafka.log").read_text()
    assert "Failed to load" not in log
