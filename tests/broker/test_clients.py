"""Unmodified clients produce and consume: librdkafka (confluent-kafka), kafka-python, aiokafka.

Codecs, headers, nulls.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stratalog.broker.server.server import Broker
from stratalog.records.batch import iter_batches
from stratalog.records.compression import Codec

with warnings.catch_warnings():  # kafka-python reads its resources by a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition as PyTopicPartition

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 300
#: (key, value, headers, timestamp)
Message = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

_topic_number = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """A fresh topic of one partition."""
    return broker.services.topics.create(f"t{next(_topic_number)}", 1).name


def messages() -> list[Message]:
    chance = random.Random(11)
    made: list[Message] = []
    for number in range(COUNT):
        key = chance.choice([None, b"", b"key-%d" % number])
        values = [b"", b"value-%d " % number * chance.randrange(1, 30), None]
        value = chance.choice(values if key else values[:2])  # some clients refuse a message of two nulls
        headers: list[tuple[str, bytes | None]] = [
            (f"h{n}", chance.choice([None, b"", chance.randbytes(5)])) for n in range(chance.randrange(3))
        ]
        made.append((key, value, headers, 1_700_000_000_000 + number))
    return made


def codecs_in(broker: Broker, topic: str) -> set[str]:
    partition = broker.services.partition(topic, 0)
    assert partition is not None
    data = partition.read(0, 10**9)
    assert data.slice is not None
    return {Codec(batch.codec).name.lower() for batch in iter_batches(data.slice.read())}


# --- librdkafka ---------------------------------------------------------------------------------------------


def confluent_produce(broker: Broker, topic: str, sent: list[Message], **config: Any) -> list[int]:
    """Produce in order; the offsets that were acknowledged."""
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **config})
    for key, value, headers, timestamp in sent:
        producer.produce(topic, key=key, value=value, headers=headers, timestamp=timestamp, on_delivery=delivered)
    assert producer.flush(30) == 0
    return offsets


def confluent_consume(broker: Broker, topic: str, count: int, offset: int = 0, /, **config: Any) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", **config})
    consumer.assign([TopicPartition(topic, 0, offset)])
    got: list[Message] = []
    try:
        while len(got) < count:
            batch = consumer.consume(count, timeout=30)
            assert batch, f"only {len(got)} of {count} messages came"
            for message in batch:
                assert message.error() is None
                got.append((message.key(), message.value(), message.headers() or [], message.timestamp()[1]))
    finally:
        consumer.close()
    return got


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_round_trip(broker: Broker, topic: str, codec: str) -> None:
    sent = messages()
    assert confluent_produce(broker, topic, sent, **{"compression.type": codec}) == list(range(COUNT))
    assert codecs_in(broker, topic) == {codec}
    assert confluent_consume(broker, topic, COUNT) == sent


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_kafka_with_each_acks(broker: Broker, topic: str, acks: str) -> None:
    sent = messages()
    confluent_produce(broker, topic, sent, acks=acks)
    assert confluent_consume(broker, topic, COUNT) == sent


def test_confluent_kafka_idempotent_producer(broker: Broker, topic: str) -> None:
    sent = messages()
    assert confluent_produce(broker, topic, sent, **{"enable.idempotence": True}) == list(range(COUNT))
    assert confluent_consume(broker, topic, COUNT, 0, **{"isolation.level": "read_committed"}) == sent


def test_confluent_kafka_checks_crcs_and_seeks(broker: Broker, topic: str) -> None:
    sent = messages()
    confluent_produce(broker, topic, sent)
    got = confluent_consume(broker, topic, COUNT - 217, 217, **{"check.crcs": True})
    assert got == sent[217:]


def test_confluent_kafka_offsets_by_time(broker: Broker, topic: str) -> None:
    sent = messages()
    confluent_produce(broker, topic, sent)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, COUNT)
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, sent[100][3])], timeout=30)
        assert found.offset == 100
    finally:
        consumer.close()


def test_confluent_kafka_creates_a_topic_by_producing_to_it(broker: Broker) -> None:
    sent = messages()[:10]
    confluent_produce(broker, "made-by-producing", sent)
    assert confluent_consume(broker, "made-by-producing", 10) == sent
    assert (
        "made-by-producing"
        in AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics
    )


# --- kafka-python -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip"])  # the others need packages of their own for this client
def test_kafka_python_round_trip(broker: Broker, topic: str, codec: str) -> None:
    # This client has no null headers.
    sent = [
        (key, value, [(name, header or b"") for name, header in headers], timestamp)
        for key, value, headers, timestamp in messages()
    ]
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
        acks="all",
    )
    try:
        futures = [
            producer.send(topic, key=key, value=value, headers=headers, timestamp_ms=timestamp)
            for key, value, headers, timestamp in sent
        ]
        producer.flush(30)
        assert [future.get(30).offset for future in futures] == list(range(COUNT))
    finally:
        producer.close()
    assert codecs_in(broker, topic) == {codec}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=30_000)
    try:
        partition = PyTopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        got = [
            (message.key, message.value, list(message.headers), message.timestamp)
            for message in itertools.islice(consumer, COUNT)
        ]
    finally:
        consumer.close()
    assert got == sent


# --- aiokafka -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_aiokafka_round_trip(broker: Broker, topic: str, codec: str, idempotent: bool) -> None:
    sent = messages()

    async def main() -> list[Message]:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=5,
        )
        await producer.start()
        try:
            waiting = [
                await producer.send(topic, key=key, value=value, headers=headers, timestamp_ms=timestamp)
                for key, value, headers, timestamp in sent
            ]
            assert [(await future).offset for future in waiting] == list(range(COUNT))
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        await consumer.start()
        got: list[Message] = []
        try:
            partition = AioTopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            while len(got) < COUNT:
                message = await asyncio.wait_for(consumer.getone(), 30)
                got.append((message.key, message.value, list(message.headers), message.timestamp))
        finally:
            await consumer.stop()
        return got

    assert asyncio.run(main()) == sent
    assert codecs_in(broker, topic) == {codec}
