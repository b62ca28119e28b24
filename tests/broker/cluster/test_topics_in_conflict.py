"""In a cluster, broker settings may put topics in conflict: no broker checks the topics, as in Kafka."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stratalog.broker.cluster.cluster_view import MemberView
from stratalog.broker.metadata import Topic
from stratalog.config import BrokerConfig
from stratalog.wire.client import ConnectionOptions


def test_a_topic_in_conflict_with_the_brokers_settings_is_logged_once_for_each_conflict(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = SimpleNamespace(configs={"min.compaction.lag.ms": "1000", "retention.ms": "70000"})
    metadata = SimpleNamespace(topic={"orders": cast("Topic", topic)}.get, good_topic_defaults={})
    settings = SimpleNamespace(current=BrokerConfig({}))
    cluster = SimpleNamespace(large_segments=False, connection=ConnectionOptions(servers=()))
    member = SimpleNamespace(settings=cluster, quorum=SimpleNamespace(leader=None))
    view = MemberView(cast("Any", member), cast("Any", metadata), cast("Any", settings))

    def lines() -> list[str]:
        said = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return said

    with caplog.at_level(logging.WARNING):
        assert view.log_config("orders").min_compaction_lag_ms == 1000
        assert lines() == []
        settings.current = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "500"})
        for _ in range(3):
            config = view.log_config("orders")
            assert config.min_compaction_lag_ms > 1000, "nothing is compacted because of it"
            assert config.retention_ms == 70000, "what is not in conflict is in force"
        (line,) = lines()
        assert "Topic orders is served, but its configuration is in conflict" in line
        topic.configs["min.compaction.lag.ms"] = "400"
        assert view.log_config("orders").min_compaction_lag_ms == 400
        assert lines() == []
        topic.configs["min.compaction.lag.ms"] = "1000"
        view.log_config("orders")
        assert lines() == [line]
