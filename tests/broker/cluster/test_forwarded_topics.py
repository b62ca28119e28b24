"""Topics of the broker's own, as a broker of a cluster asks the controllers for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stratalog.broker.cluster.client_topics import new_topic
from stratalog.broker.cluster.forwarded_topics import ForwardedTopics
from stratalog.broker.internal_topics import TRANSACTION_STATE_TOPIC, ensure_internal_topic
from stratalog.config import BrokerConfig
from stratalog.util import SYSTEM_CLOCK
from stratalog.wire import ApiKey


class Controllers:
    """Creates what it is asked for, and is the metadata too."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}

    def ask(self, key: ApiKey, versions: tuple[int, int], **fields: Any) -> Any:
        assert key is ApiKey.CREATE_TOPICS
        (wanted,) = fields["topics"]
        self.made[wanted["name"]] = wanted
        return SimpleNamespace(topics=[SimpleNamespace(error_code=0, error_message=None)])

    def topic(self, name: str) -> Any:
        return self.made.get(name)


@pytest.mark.parametrize(
    ("set_keys", "replicas", "min_isr"),
    [
        ({}, 3, "2"),
        ({"transaction.state.log.min.isr": "1", "transaction.state.log.replication.factor": "2"}, 2, "1"),
    ],
)
def test_the_topic_of_transactions_has_the_defaults_of_kafka(
    set_keys: dict[str, str], replicas: int, min_isr: str
) -> None:
    config = BrokerConfig.from_properties(set_keys)
    controllers: Any = Controllers()
    topics = ForwardedTopics(controllers, controllers, lambda: config, SYSTEM_CLOCK)
    ensure_internal_topic(TRANSACTION_STATE_TOPIC, topics, config)
    made = controllers.made["__transaction_state"]
    configs = {each["name"]: each["value"] for each in made["configs"]}
    assert made["replication_factor"] == replicas
    assert configs["min.insync.replicas"] == min_isr
    assert configs["cleanup.policy"] == "compact"
    assert new_topic(TRANSACTION_STATE_TOPIC, config) == made
