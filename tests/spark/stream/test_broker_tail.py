"""A stream through a broker: its tail, alone and behind data directories."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from stratalog import Broker
from stratalog.spark.options.data_loss import DataLossError
from tests.spark.stream.driving import Query, Record


class Topic:
    """A topic of a broker of ours, and what was sent to it."""

    def __init__(self, broker: Broker, name: str, partitions: int = 2) -> None:
        self.name = name
        self._client: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap_servers}
        self._admin = AdminClient(self._client)
        for created in self._admin.create_topics([NewTopic(name, partitions)]).values():
            created.result(20)
        self.sent: list[Record] = []

    def send(self, partition: int, count: int, size: int = 100) -> list[Record]:
        producer = Producer(self._client | {"linger.ms": 0})
        delivered: list[int] = []

        def keep(error: object, message: Message) -> None:
            assert error is None
            delivered.append(message.offset() or 0)

        for _ in range(count):
            producer.produce(self.name, b"x" * size, partition=partition, on_delivery=keep)
        assert producer.flush(20) == 0
        assert len(delivered) == count
        found = sorted((self.name, partition, offset) for offset in delivered)
        self.sent += found
        return found

    def grow(self, partitions: int) -> None:
        for grown in self._admin.create_partitions([NewPartitions(self.name, partitions)]).values():
            grown.result(20)

    def delete(self) -> None:
        for deleted in self._admin.delete_topics([self.name]).values():
            deleted.result(20)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[Broker]:
    with Broker(data_dir=data_dir, listen="127.0.0.1:0") as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Topic:
    return Topic(broker, re.sub("[^a-z_]", "-", request.node.name))


@pytest.fixture
def query(broker: Broker, topic: Topic) -> Iterator[Callable[..., Query]]:
    """Starts a stream of the topic, with further options."""
    with ExitStack() as stack:

        def start(**options: Any) -> Query:
            base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "startingOffsets": "earliest"}
            stream = Query({**base, "subscribe": topic.name, **options})
            stack.callback(stream.close)
            return stream

        yield start


@pytest.mark.parametrize("behind", ["alone", "behind files"])
def test_a_stream_follows_the_tail(query: Callable[..., Query], topic: Topic, data_dir: Path, behind: str) -> None:
    stream = query(**({} if behind == "alone" else {"path": data_dir}))
    assert stream.trigger() == []
    for partition in (0, 1, 0):
        assert stream.trigger() is None
        sent = topic.send(partition, 20)
        assert stream.trigger() == sent
    stream.restart()
    assert stream.trigger() is None
    assert stream.follower.latest == {(topic.name, 0): 40, (topic.name, 1): 20}


def test_new_partitions_are_found(query: Callable[..., Query], topic: Topic) -> None:
    stream = query()
    stream.trigger()
    topic.grow(3)
    sent = topic.send(2, 5)
    assert stream.run_until_idle()[-1] == sent


def test_limits_hold_through_a_broker(query: Callable[..., Query], topic: Topic) -> None:
    topic.send(0, 300, size=1000)
    stream = query(maxOffsetsPerTrigger=100)
    assert [len(rows) for rows in stream.run_until_idle()] == [100, 100, 100]
    stream = query(maxBytesPerTrigger="60k")
    batches = stream.run_until_idle()
    assert 4 <= len(batches) <= 8
    assert stream.records == topic.sent


def test_available_now_through_a_broker(query: Callable[..., Query], topic: Topic) -> None:
    topic.send(0, 30)
    stream = query(maxOffsetsPerTrigger=20)
    stream.follower.fix_end()
    topic.send(1, 5)
    stream.run_until_idle()
    assert [record[1:] for record in stream.records] == [(0, offset) for offset in range(30)]


def test_a_topic_that_is_deleted_is_an_error_or_read_when_it_is_back(
    broker: Broker, query: Callable[..., Query], topic: Topic
) -> None:
    topic.send(0, 30)
    stream = query()
    stream.trigger()
    topic.delete()
    with pytest.raises(DataLossError, match="-0, which was read up to offset 30, no longer exists"):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() == []
    sent = Topic(broker, topic.name).send(0, 40)
    assert stream.trigger() == sent


def test_a_topic_that_is_made_again_between_two_looks_is_reported(
    broker: Broker, query: Callable[..., Query], topic: Topic
) -> None:
    topic.send(0, 30)
    stream = query()
    stream.trigger()
    topic.delete()
    Topic(broker, topic.name).send(0, 40)
    with pytest.raises(DataLossError, match="deleted and created again"):
        stream.trigger()
