"""A topic passes 2 GiB a segment only while every broker that holds it has said that it can (KIP-1333)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from stratalog.broker.cluster.cluster_view import MemberView
from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.features import brokers_without_large_segments, claimed_features
from stratalog.broker.cluster.image import EMPTY_IMAGE
from stratalog.broker.cluster.image_metadata import ImageMetadata
from stratalog.broker.cluster.publisher import MetadataPublisher
from stratalog.config import BrokerConfig, LogConfig
from stratalog.wire.client import ConnectionOptions
from stratalog.wire.metadata_records import BrokerFeature, PartitionRecord, RegisterBrokerRecord, TopicRecord

TOPIC_ID = UUID(int=9)
GIB = 1 << 30
FEATURE = "stratalog.large.segments"


class World:
    """Brokers 1 to 3, of which 1 and 2 hold `orders`; the view is broker 1's."""

    def __init__(self, *capable: int, switch: bool = True) -> None:
        self.metadata = ImageMetadata("cluster", large_segments=switch)
        settings = SimpleNamespace(node_id=1, large_segments=switch, connection=ConnectionOptions(servers=()))
        member = SimpleNamespace(settings=settings, quorum=SimpleNamespace(leader=None))
        config = BrokerConfig.from_properties({"log.segment.bytes": str(4 * GIB), FEATURE: str(switch).lower()})
        self.view = MemberView(cast("Any", member), self.metadata, cast("Any", SimpleNamespace(current=config)))
        self.image = EMPTY_IMAGE
        partition = PartitionRecord(topic_id=TOPIC_ID, replicas=(1, 2), isr=(1, 2), leader=1)
        self.take(*(register(each, large=each in capable) for each in (1, 2, 3)))
        self.take(TopicRecord(name="orders", topic_id=TOPIC_ID), partition)

    def take(self, *records: Any) -> MetadataDelta:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.offset + 1, 1)
        self.metadata.take(delta, self.image)
        return delta

    def config(self) -> tuple[int, bool]:
        found = self.view.log_config("orders")
        return found.segment_bytes, found.use_large_index_format


def register(broker: int, *, large: bool) -> RegisterBrokerRecord:
    claimed = claimed_features(large_segments=large)
    return RegisterBrokerRecord(
        broker_id=broker,
        broker_epoch=10 + broker,
        incarnation_id=UUID(int=50 + broker),
        features=tuple(
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in claimed.items()
        ),
    )


def test_segments_are_large_where_every_holder_says_so() -> None:
    assert World(1, 2).config() == (4 * GIB, True)


def test_a_holder_that_does_not_say_so_is_named_and_keeps_them_small(caplog: pytest.LogCaptureFixture) -> None:
    world = World(1, 3)
    with caplog.at_level(logging.WARNING):
        assert [world.config() for _ in range(3)] == [(2 * GIB - 1, False)] * 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert "orders" in line
    assert "broker 2 has replicas" in line
    world.take(register(2, large=True))
    assert world.config() == (4 * GIB, True)


def test_a_holder_that_is_not_registered_cannot_have_said_so() -> None:
    world = World(1, 2)
    world.take(PartitionRecord(topic_id=TOPIC_ID, partition_id=1, replicas=(1, 4), isr=(1,), leader=1))
    assert brokers_without_large_segments(world.image, "orders") == [4]


def test_without_the_switch_nothing_is_large() -> None:
    assert World(1, 2, switch=False).config() == (2 * GIB - 1, False)


def test_a_change_of_holders_is_put_in_force() -> None:
    world = World(1, 2)

    class Logs:
        def __init__(self) -> None:
            self.config = world.view.log_config("orders")

        def partitions(self, topic: str | None = None) -> list[Any]:
            return [SimpleNamespace(topic="orders", log=SimpleNamespace(config=self.config))]

        def update_config(self, topic: str, config: LogConfig) -> None:
            assert topic == "orders"
            self.config = config

        def apply(self, changes: object) -> None:
            pass

    logs = Logs()
    publisher = MetadataPublisher(world.metadata, 1)
    publisher.open_engine(
        cast("Any", logs), cast("Any", SimpleNamespace(take_stored=lambda: None)), world.view.log_config
    )

    def publish(*records: Any) -> bool:
        delta = MetadataDelta(world.image)
        for record in records:
            delta.replay(record)
        world.image = delta.apply(world.image.offset + 1, 1)
        publisher(delta, world.image)
        return logs.config.use_large_index_format

    assert logs.config.use_large_index_format
    assert not publish(PartitionRecord(topic_id=TOPIC_ID, partition_id=1, replicas=(3, 1), isr=(3,), leader=3))
    assert publish(register(3, large=True))
    assert not publish(register(2, large=False))
