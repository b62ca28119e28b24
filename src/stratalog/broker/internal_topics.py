"""The topics of the coordinators, and the settings that they are created with. They are Kafka's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from stratalog.broker.metadata import ClusterControl, Topic
    from stratalog.config import BrokerConfig

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"


class NewTopicSettings(NamedTuple):
    """The number of partitions of a new topic, and its own configuration."""

    partition_count: int
    configs: dict[str, str]


def _consumer_offsets(config: BrokerConfig) -> NewTopicSettings:
    return NewTopicSettings(
        config["offsets.topic.num.partitions"],
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        },
    )


def _transaction_state(config: BrokerConfig) -> NewTopicSettings:
    return NewTopicSettings(
        config["transaction.state.log.num.partitions"],
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        },
    )


def _share_state(config: BrokerConfig) -> NewTopicSettings:
    return NewTopicSettings(
        config["share.coordinator.state.topic.num.partitions"],
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
            "retention.ms": "-1",
            "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
        },
    )


_SETTINGS: Final[dict[str, Callable[[BrokerConfig], NewTopicSettings]]] = {
    CONSUMER_OFFSETS_TOPIC: _consumer_offsets,
    TRANSACTION_STATE_TOPIC: _transaction_state,
    SHARE_STATE_TOPIC: _share_state,
}
#: Internal topics, which clients may not write to.
INTERNAL_TOPICS: Final = frozenset(_SETTINGS)


def internal_topic_settings(name: str, config: BrokerConfig) -> NewTopicSettings:
    """Return the settings of a new internal topic, one of `INTERNAL_TOPICS`."""
    return _SETTINGS[name](config)


def ensure_internal_topic(name: str, topics: ClusterControl, config: BrokerConfig) -> Topic:
    """Return an internal topic, created if missing. May block."""
    return topics.ensure(name, *internal_topic_settings(name, config))
