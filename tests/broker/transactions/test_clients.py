"""Transactions of Python clients, over a real socket: confluent-kafka, aiokafka, kafka-python."""

from __future__ import annotations

import asyncio
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.killable_broker import KillableBroker

import stratalog

with warnings.catch_warnings():  # kafka-python reads its resources by a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

WAIT_S = 30
CONFIG = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[stratalog.Broker]:
    with stratalog.Broker(data_dir=tmp_path / "data", config=CONFIG) as broker:
        create(broker.bootstrap_servers)
        yield broker


def create(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    for made in admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 2, 1)]).values():
        made.result(WAIT_S)


def producer(bootstrap_servers: str, transactional_id: str = "tx", **config: Any) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 0,
            **config,
        }
    )
    made.init_transactions(WAIT_S)
    return made


def consumer(bootstrap_servers: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **config,
        }
    )


def committed(bootstrap_servers: str, topic: str, *, isolation: str = "read_committed") -> list[str]:
    """All values of a topic that count, sorted."""
    values: list[str] = []
    reader = consumer(bootstrap_servers, "reader", **{"isolation.level": isolation, "enable.partition.eof": True})
    partitions = range(len(reader.list_topics(topic, WAIT_S).topics[topic].partitions))
    reader.assign([TopicPartition(topic, number, 0) for number in partitions])
    left = len(partitions)
    while left:
        message = reader.poll(WAIT_S)
        assert message is not None
        if message.error():
            left -= 1
        else:
            values.append((message.value() or b"").decode())
    reader.close()
    return sorted(values)


def send(made: Producer, *values: str) -> None:
    for number, value in enumerate(values):
        made.produce("out", value.encode(), partition=number % 2)
    made.flush(WAIT_S)


def test_confluent_kafka_commits_and_aborts(broker: stratalog.Broker) -> None:
    made = producer(broker.bootstrap_servers)
    for number, commits in enumerate([True, False, True]):
        made.begin_transaction()
        send(made, f"{number}a", f"{number}b", f"{number}c")
        if commits:
            made.commit_transaction(WAIT_S)
        else:
            made.abort_transaction(WAIT_S)
    assert committed(broker.bootstrap_servers, "out") == ["0a", "0b", "0c", "2a", "2b", "2c"]
    assert len(committed(broker.bootstrap_servers, "out", isolation="read_uncommitted")) == 9


def test_a_second_producer_of_the_same_id_fences_the_first(broker: stratalog.Broker) -> None:
    first = producer(broker.bootstrap_servers)
    first.begin_transaction()
    send(first, "lost")
    second = producer(broker.bootstrap_servers)
    second.begin_transaction()
    send(second, "kept")
    second.commit_transaction(WAIT_S)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    assert committed(broker.bootstrap_servers, "out") == ["kept"]


def test_confluent_kafka_commits_offsets_with_its_records(broker: stratalog.Broker) -> None:
    source = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        source.produce("in", str(number).encode())
    source.flush(WAIT_S)
    reader = consumer(broker.bootstrap_servers, "copy")
    reader.subscribe(["in"])
    made = producer(broker.bootstrap_servers)
    offsets = []
    for commits in (False, True):
        made.begin_transaction()
        for _ in range(5):
            message = reader.poll(WAIT_S)
            assert message is not None
            made.produce("out", message.value(), partition=0)
        made.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), WAIT_S)
        if commits:
            made.commit_transaction(WAIT_S)
        else:
            made.abort_transaction(WAIT_S)
            reader.seek(TopicPartition("in", 0, 0))
        offsets.append(reader.committed([TopicPartition("in", 0)], WAIT_S)[0].offset)
    reader.close()
    assert offsets == [-1001, 5]
    assert committed(broker.bootstrap_servers, "out") == list("01234")


def test_aiokafka_commits_and_aborts(broker: stratalog.Broker) -> None:
    async def run() -> None:
        made = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="aio", acks="all")
        await made.start()
        try:
            async with made.transaction():
                await made.send_and_wait("out", b"kept", partition=0)
                await made.send_offsets_to_transaction({aiokafka.TopicPartition("in", 0): 7}, "aio-group")
            await made.begin_transaction()
            await made.send_and_wait("out", b"lost", partition=0)
            await made.abort_transaction()
        finally:
            await made.stop()

    asyncio.run(run())
    assert committed(broker.bootstrap_servers, "out") == ["kept"]
    reader = consumer(broker.bootstrap_servers, "aio-group")
    assert reader.committed([TopicPartition("in", 0)], WAIT_S)[0].offset == 7
    reader.close()


def test_kafka_python_commits_and_aborts(broker: stratalog.Broker) -> None:
    made = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="kp", acks="all")
    made.init_transactions()
    for value, commits in ((b"kept", True), (b"lost", False), (b"kept too", True)):
        made.begin_transaction()
        made.send("out", value, partition=0).get(WAIT_S)
        made.send_offsets_to_transaction(
            {kafka.TopicPartition("in", 0): kafka.structs.OffsetAndMetadata(3, "", -1)}, "kp-group"
        )
        made.commit_transaction() if commits else made.abort_transaction()
    made.close()
    assert committed(broker.bootstrap_servers, "out") == ["kept", "kept too"]


def test_a_copy_loop_copies_each_record_once_while_the_broker_is_killed(tmp_path: Path) -> None:
    """Records and offsets move together: a loop that loses its broker at any time goes on without gap or duplicate."""
    total, batch = 160, 10
    with KillableBroker(tmp_path / "data", settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        create(broker.address)
        source = Producer({"bootstrap.servers": broker.address})
        for number in range(total):
            source.produce("in", f"{number:04d}".encode())
        source.flush(WAIT_S)
        done = kills = 0
        while done < total:
            done = _copy(broker, total, batch, stop_after=3 + 3 * kills)
            if done < total:
                broker.end(signal.SIGKILL)
                broker.start()
                kills += 1
        assert kills >= 2
        assert committed(broker.address, "out") == [f"{number:04d}" for number in range(total)]


def _copy(broker: KillableBroker, total: int, batch: int, *, stop_after: int) -> int:
    """Copy from where the group is; how far it came. Stops, with a transaction open, after so many of them."""
    reader = consumer(broker.address, "copy", **{"isolation.level": "read_committed"})
    made = producer(broker.address, "copy")
    place = reader.committed([TopicPartition("in", 0)], WAIT_S)[0]
    at: int = max(place.offset, 0)
    reader.assign([TopicPartition("in", 0, at)])
    for turn in range(stop_after + 1):
        if at >= total:
            break
        made.begin_transaction()
        for _ in range(batch):
            message = reader.poll(WAIT_S)
            assert message is not None
            assert message.offset() == at
            at += 1
            made.produce("out", message.value(), partition=at % 2)
        made.send_offsets_to_transaction([TopicPartition("in", 0, at)], reader.consumer_group_metadata(), WAIT_S)
        if turn == stop_after:
            at -= batch  # left open: the next producer of this id aborts it
            made.flush(WAIT_S)
        else:
            made.commit_transaction(WAIT_S)
    reader.close()
    return at
