"""A storage plugin of 32-bit positions: larger segments of tiered topics are refused before anything is set
(KIP-1333)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.admin import alter, create
from tests.broker.admin_cases import SET, TOPIC
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager

INVALID_CONFIG = 40
LIMIT = 2**31 - 1
TIERED: dict[str, Any] = {"remote.storage.enable": "true"}
LARGE: dict[str, Any] = {"segment.bytes": str(4 * 2**30), "segment.index.bytes": str(64 * 2**20)}


class NarrowStorage(ObjectStoreRemoteStorageManager):
    position_max = LIMIT


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    config = {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.topic.num.partitions": "1",
        "remote.log.storage.manager.class.name": f"{__name__}:NarrowStorage",
        "rsm.config.url": f"file://{tmp_path}/bucket",
        "stratalog.initial.metadata.version": "32",
    }
    with Broker(data_dir=tmp_path / "data", config=config) as broker:
        yield broker


def test_a_tiered_topic_cannot_have_segments_that_the_plugin_cannot_reach(broker: Broker, wire: Wire) -> None:
    refused = create(wire, "both", **(TIERED | LARGE))
    assert refused.error_code == INVALID_CONFIG
    assert f"takes positions up to {LIMIT}" in refused.error_message
    assert broker.services.metadata.topic("both") is None

    assert create(wire, "local", **LARGE).error_code == 0
    assert alter(wire, TOPIC, "local", ("remote.storage.enable", SET, "true")).error_code == INVALID_CONFIG
    assert create(wire, "tiered", **TIERED).error_code == 0
    assert alter(wire, TOPIC, "tiered", ("segment.bytes", SET, LARGE["segment.bytes"])).error_code == INVALID_CONFIG
    tiered = broker.services.metadata.topic("tiered")
    assert tiered is not None
    assert "segment.bytes" not in tiered.configs
    assert alter(wire, TOPIC, "tiered", ("segment.bytes", SET, str(LIMIT))).error_code == 0
