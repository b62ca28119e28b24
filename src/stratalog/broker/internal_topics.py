"""The topics of the coordinators, and the settings that they are created with. They are Kafka's."""

from __future__ import annotations

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


class _InternalTopic(NamedTuple):
    """The key of the broker's configuration for the number of partitions, fixed settings, and keys of the others."""

    partition_count: str
    fixed: dict[str, str]
    configured: dict[str, str]


_SETTINGS: Final = {
    CONSUMER_OFFSETS_TOPIC: _InternalTopic(
        "offsets.topic.num.partitions",
        {"cleanup.policy": "compact", "compression.type": "producer"},
        {"segment.bytes": "offsets.topic.segment.bytes"},
    ),
    TRANSACTION_STATE_TOPIC: _InternalTopic(
        "transaction.state.log.num.partitions",
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
        {
            "min.insync.replicas": "transaction.state.log.min.isr",
            "segment.bytes": "transaction.state.log.segment.bytes",
        },
    ),
    SHARE_STATE_TOPIC: _InternalTopic(
        "share.coordinator.state.topic.num.partitions",
        {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        {
            "min.insync.replicas": "share.coordinator.state.topic.min.isr",
            "segment.bytes": "share.coordinator.state.topic.segment.bytes",
        },
    ),
}
#: Internal topics, which clients may not write to.
INTERNAL_TOPICS: Final = frozenset(_SETTINGS)


def internal_topic_settings(name: str, config: BrokerConfig) -> NewTopicSettings:
    """Return the settings of a new internal topic, one of `INTERNAL_TOPICS`."""
    topic = _SETTINGS[name]
    configured = {setting: str(config[key]) for setting, key in topic.configured.items()}
    return NewTopicSettings(config[topic.partition_count], dict(sorted((topic.fixed | configured).items())))


def ensure_internal_topic(name: str, topics: ClusterControl, config: BrokerConfig) -> Topic:
    """Return an internal topic, created if missing. May block."""
    return topics.ensure(name, *internal_topic_settings(name, config))
