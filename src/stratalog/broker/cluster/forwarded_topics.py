"""Create topics for the broker itself and for clients on the controllers: the `ClusterControl` of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from stratalog.broker.cluster.forwarding import Forwarder
from stratalog.broker.internal_topics import NewTopicSettings
from stratalog.broker.metadata import ClusterMetadata, Topic
from stratalog.broker.topics import check_topic_name
from stratalog.config import BrokerConfig
from stratalog.errors import (
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from stratalog.util import Clock
from stratalog.wire import ApiKey

_VERSIONS: Final = (4, 7)
_TIMEOUT_S: Final = 30.0
_CHECK_S: Final = 0.02
#: Keys of the replication factors of the broker's internal topics.
_REPLICAS: Final = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
    "__remote_log_metadata": "remote.log.metadata.topic.replication.factor",
}
#: Kafka's default for those; ours is for a single broker.
_REPLICAS_DEFAULT: Final = 3
#: Keys of their numbers of in-sync replicas.
_MIN_ISR: Final = {
    "__transaction_state": "transaction.state.log.min.isr",
    "__share_group_state": "share.coordinator.state.topic.min.isr",
    "__remote_log_metadata": "remote.log.metadata.topic.min.isr",
}
_MIN_ISR_DEFAULT: Final = 2


class ForwardedTopics:
    """Creates topics. Thread-safe. Each method blocks until the topic is in this broker's metadata."""

    def __init__(
        self, metadata: ClusterMetadata, forwarder: Forwarder, config: Callable[[], BrokerConfig], clock: Clock
    ) -> None:
        self._metadata = metadata
        self._forwarder = forwarder
        self._config = config
        self._clock = clock

    def create(self, name: str, partition_count: int | None = None, configs: Mapping[str, str] | None = None) -> Topic:
        check_topic_name(name)
        config = self._config()
        count = config["num.partitions"] if partition_count is None else partition_count
        wanted = replicated_topic(name, NewTopicSettings(count, dict(configs or {})), config)
        answer = self._forwarder.ask(
            ApiKey.CREATE_TOPICS, _VERSIONS, topics=[wanted], timeout=round(_TIMEOUT_S * 1000), validate_only=False
        )
        response = answer.topics[0]
        if int(response.error_code):
            raise error_for_code(int(response.error_code))(response.error_message or f"topic {name} cannot be created")
        return self._wait_for(name)

    def ensure(self, name: str, partition_count: int, configs: Mapping[str, str] | None = None) -> Topic:
        try:
            return self._metadata.topic(name) or self.create(name, partition_count, configs)
        except TopicAlreadyExistsError:  # another broker was faster
            return self._wait_for(name)

    def known(self, name: str) -> Topic:
        topic = self._metadata.topic(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
        return topic

    def _wait_for(self, name: str) -> Topic:
        deadline = self._clock.monotonic() + _TIMEOUT_S
        while (topic := self._metadata.topic(name)) is None:
            if self._clock.monotonic() >= deadline:
                raise RequestTimedOutError(f"topic {name} was created, but is not in this broker's metadata")
            self._clock.sleep(_CHECK_S)
        return topic


def replicated_topic(name: str, settings: NewTopicSettings, config: BrokerConfig) -> dict[str, Any]:
    """Return a topic for CreateTopics; internal topics with the replicas that they need in a cluster."""
    configs = {**settings.configs, **_min_isr(config, name)}
    return {
        "name": name,
        "num_partitions": settings.partition_count,
        "replication_factor": _replicas(config, name),
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }


def _replicas(config: BrokerConfig, name: str) -> int:
    key = _REPLICAS.get(name, "default.replication.factor")
    replicas: int = config[key] if config.is_set(key) or name not in _REPLICAS else _REPLICAS_DEFAULT
    return replicas


def _min_isr(config: BrokerConfig, name: str) -> dict[str, str]:
    """Return the configuration that an internal topic needs in a cluster only."""
    key = _MIN_ISR.get(name)
    if key is None:
        return {}
    return {"min.insync.replicas": str(config[key] if config.is_set(key) else _MIN_ISR_DEFAULT)}
