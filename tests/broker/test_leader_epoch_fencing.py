"""Clients that know another leader epoch are fenced, with the codes that Apache Kafka 4.4.0 gives.

A restart of a single Kafka node takes a partition from leader epoch 0 to 2; these are its answers after one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey

NONE, FENCED, UNKNOWN = 0, 74, 75
#: By the epoch that the client knows.
KAFKA = {-1: NONE, 0: FENCED, 1: FENCED, 2: NONE, 3: UNKNOWN, 50: UNKNOWN}


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    directory: Path = tmp_path_factory.mktemp("data")
    with Broker(data_dir=directory) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create("t", 1)
        partition = broker.services.partition("t", 0)
        assert partition is not None
        partition.become_leader(2)
        yield wire


@pytest.mark.parametrize("version", [9, 11, 12])
@pytest.mark.parametrize("epoch", KAFKA)
def test_fetch(wire: Wire, version: int, epoch: int) -> None:
    entry = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100, "current_leader_epoch": epoch}
    fields: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1}
    answer = wire.call(ApiKey.FETCH, version, **fields, topics=[{"topic": "t", "partitions": [entry]}])
    assert answer.responses[0].partitions[0].error_code == KAFKA[epoch]


@pytest.mark.parametrize("timestamp", [-1, -2, -3, -4, 5])
@pytest.mark.parametrize("epoch", KAFKA)
def test_list_offsets(wire: Wire, epoch: int, timestamp: int) -> None:
    entry = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": epoch}
    answer = wire.call(ApiKey.LIST_OFFSETS, 9, replica_id=-1, topics=[{"name": "t", "partitions": [entry]}])
    found = answer.topics[0].partitions[0]
    assert found.error_code == KAFKA[epoch]
    if KAFKA[epoch]:
        assert (found.timestamp, found.offset, found.leader_epoch) == (-1, -1, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("epoch", KAFKA)
def test_offset_for_leader_epoch(wire: Wire, version: int, epoch: int) -> None:
    fields = {"replica_id": -1} if version >= 3 else {}
    entry = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": 0}
    topics = [{"topic": "t", "partitions": [entry]}]
    found = wire.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=topics, **fields).topics[0].partitions[0]
    reported = (found.error_code, found.leader_epoch, found.end_offset)
    assert reported == ((KAFKA[epoch], -1, -1) if KAFKA[epoch] else (0, 0, 0))
