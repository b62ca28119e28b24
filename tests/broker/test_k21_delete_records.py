"""DeleteRecords: how far it goes, and how far it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.log.format.checkpoints import LOG_START_OFFSETS, OffsetCheckpoint
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util.filesystem import REAL_FILESYSTEM
from stratalog.wire.api_keys import ApiKey


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        broker.services.topics.create("t", 1)
        broker.services.topics.create("compacted", 1, {"cleanup.policy": "compact"})
        partition = broker.services.partition("t", 0)
        assert partition is not None
        for at in range(10):
            partition.append(build_batch([Record(0, 1_700_000_000_000 + at, None, b"v")]))
        yield broker


def delete(broker: Broker, offset: int, topic: str = "t", partition: int = 0) -> tuple[int, int]:
    """Error code and low watermark."""
    part = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
    with Wire(broker.bootstrap_servers) as wire:
        answer = wire.call(ApiKey.DELETE_RECORDS, 2, topics=[part], timeout=5_000).topics[0].partitions[0]
    return int(answer.error_code), answer.low_watermark


def test_the_log_begins_where_it_was_set_to_and_never_goes_back(broker: Broker) -> None:
    assert delete(broker, 4) == (0, 4)
    assert delete(broker, 2) == (0, 4)
    assert delete(broker, -1) == (0, 10)


@pytest.mark.parametrize("offset", [11, -2])
def test_an_offset_that_is_not_there_is_out_of_range(broker: Broker, offset: int) -> None:
    assert delete(broker, offset) == (1, -1)


def test_topics_that_are_unknown_or_internal_or_compacted_are_refused(broker: Broker) -> None:
    assert delete(broker, 0, "nowhere") == (3, -1)
    assert delete(broker, 0, partition=1) == (3, -1)
    assert delete(broker, 0, "compacted") == (44, -1)
    with Wire(broker.bootstrap_servers) as wire:
        wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
    assert delete(broker, 0, "__consumer_offsets") == (17, -1)


def test_what_was_answered_is_on_the_disk(broker: Broker, tmp_path: Path) -> None:
    assert delete(broker, 4) == (0, 4)
    assert OffsetCheckpoint(tmp_path / LOG_START_OFFSETS, REAL_FILESYSTEM).read() == {("t", 0): 4}
