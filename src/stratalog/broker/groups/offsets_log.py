"""The log of `__consumer_offsets`, and the topic's creation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.broker.coordinator_log import CoordinatorLog
from stratalog.records import Codec

if TYPE_CHECKING:
    from stratalog.broker.metadata import ClusterControl
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.config import BrokerConfig

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"


def offsets_log(storage: BrokerStorage, workers: Workers) -> CoordinatorLog:
    """Return the log of groups and their commits."""
    return CoordinatorLog(
        storage,
        workers,
        CONSUMER_OFFSETS_TOPIC,
        create=lambda: create_consumer_offsets(storage.control, storage.config),
        codec=lambda: Codec(storage.config["offsets.topic.compression.codec"]),
    )


def create_consumer_offsets(topics: ClusterControl, config: BrokerConfig) -> object:
    """Create the topic with Kafka's configuration. May block."""
    return topics.ensure(
        CONSUMER_OFFSETS_TOPIC,
        config["offsets.topic.num.partitions"],
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        },
    )
