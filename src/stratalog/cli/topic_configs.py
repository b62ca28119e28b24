"""The settings of topics, from the files of a broker or from a running broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path

from stratalog.broker.metadata import STORE_FILE, MetadataStore
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, check, check_topic

_TOPIC = 2


def stored_configs(directories: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Return the settings of every topic in the first directory with a store. Kafka's directories have none."""
    for directory in directories:
        if (directory / STORE_FILE).is_file():
            with closing(MetadataStore.open(directory)) as store:
                return {topic.name: dict(topic.configs) for topic in store.topics()}
    return {}


def served_configs(cluster: Cluster, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the effective settings of each topic, with the broker's defaults. Raises UnknownTopicOrPartitionError."""
    found: dict[str, dict[str, str]] = {}
    for topic in topics:
        resource = {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": None}
        (answer,) = cluster.any.call(ApiKey.DESCRIBE_CONFIGS, (1, 4), resources=[resource]).results
        check_topic(answer.error_code, topic)
        check(answer.error_code, answer.error_message)
        found[topic] = {str(entry.name): str(entry.value) for entry in answer.configs if entry.value is not None}
    return found
