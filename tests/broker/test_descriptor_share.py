"""Topics take no file descriptors that connections, segments that roll and the broker's own topics need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.wire import Wire

from stratalog.broker import topics as topics_module
from stratalog.broker.server import Broker
from stratalog.wire.api_keys import ApiKey

POLICY_VIOLATION = 44


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        yield broker


def used() -> int:
    """The lowest descriptor that is free."""
    found = os.open(os.devnull, os.O_RDONLY)
    os.close(found)
    return found


def test_topics_and_partitions_beyond_the_share_are_refused_by_name(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = (used() + 100) * 8 // 7
    monkeypatch.setattr(topics_module, "descriptors_max", lambda: limit)
    monkeypatch.setattr(topics_module, "descriptors_left", lambda: limit - used())

    def create(wire: Wire, name: str, count: int) -> tuple[int, str]:
        topic = {"name": name, "num_partitions": count, "replication_factor": 1}
        (answer,) = wire.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=30_000).topics
        return int(answer.error_code), answer.error_message or ""

    with Wire(broker.bootstrap_servers) as wire:
        assert create(wire, "some", 50) == (0, "")
        code, why = create(wire, "many", 60)
        assert code == POLICY_VIOLATION
        assert "many cannot have 60 more partitions" in why
        assert "ulimit -n" in why
        answer = wire.call(
            ApiKey.CREATE_PARTITIONS,
            3,
            topics=[{"name": "some", "count": 200, "assignments": None}],
            timeout=30_000,
            validate_only=False,
        )
        assert [int(each.error_code) for each in answer.results] == [POLICY_VIOLATION]
        assert create(wire, "few", 10) == (0, "")
        assert int(wire.call(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0).error_code) in (0, 15)
    assert broker.services.metadata.topic("__consumer_offsets") is not None
    assert broker.services.metadata.topic("many") is None
