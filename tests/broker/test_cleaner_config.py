"""The cleaner's configuration, changed while the broker serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.admin import alter, create, described
from tests.broker.admin_cases import BROKER, SET, TOPIC
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        yield broker


def test_cleaner_threads_change_at_once(broker: Broker, wire: Wire) -> None:
    assert alter(wire, BROKER, "", ("log.cleaner.threads", SET, "2")).error_code == 0
    cleaner = broker.services.logs.cleaner
    assert cleaner is not None
    assert len(cleaner.threads) == 2


def test_more_than_double_is_refused_in_kafkas_words(broker: Broker, wire: Wire) -> None:
    refused = alter(wire, BROKER, "", ("log.cleaner.threads", SET, "3"))
    assert refused.error_code == 42
    assert "Log cleaner threads cannot be increased to more than double the current value 1" in refused.error_message
    assert described(wire, BROKER, "1")["log.cleaner.threads"].value == "1"


def test_the_rate_of_all_threads_changes_at_once_and_after_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
        changed = ("log.cleaner.io.max.bytes.per.second", SET, "1000000")
        assert alter(wire, BROKER, "", changed).error_code == 0
        assert broker.services.logs.cleaner is not None
        assert broker.services.logs.cleaner.throttle.bytes_per_second == 1_000_000
    with Broker(data_dir=tmp_path / "data") as broker:
        assert broker.services.logs.cleaner is not None
        assert broker.services.logs.cleaner.throttle.bytes_per_second == 1_000_000


def test_a_tiered_topic_cannot_be_compacted(wire: Wire) -> None:
    create(wire, "t", cleanup_policy="compact")
    refused = alter(wire, TOPIC, "t", ("remote.storage.enable", SET, "true"))
    assert refused.error_code == 40
    assert "only supports topics with cleanup.policy=delete" in refused.error_message
