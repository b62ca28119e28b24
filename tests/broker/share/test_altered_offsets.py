"""AlterShareGroupOffsets with topics that name no partitions, or one that cannot be. The answers are those of
Kafka 4.4.0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey

_UNKNOWN, _FAILED = 3, -1


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    directory: Path = tmp_path_factory.mktemp("data")
    with Broker(data_dir=directory) as broker, Wire(broker.bootstrap_servers) as wire:
        for name in ("t", "u"):
            broker.services.topics.create(name, 1)
        yield wire


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ({"t": []}, {"t": []}),
        ({"x": []}, {}),
        ({"t": [], "u": [0]}, {"t": [], "u": [(0, 0)]}),
        ({"t": [], "x": [0]}, {"t": [], "x": [(0, _UNKNOWN)]}),
        ({"t": [5]}, {"t": [(5, _UNKNOWN)]}),
        ({"t": [0], "u": [], "x": []}, {"t": [(0, 0)], "u": []}),
    ],
    ids=str,
)
def test_a_known_topic_without_partitions_is_in_the_answer(
    wire: Wire, asked: Mapping[str, Sequence[int]], answered: Mapping[str, Sequence[tuple[int, int]]]
) -> None:
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": index, "start_offset": 0} for index in indexes]}
        for name, indexes in asked.items()
    ]
    response = wire.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)
    assert response.error_code == 0
    found = {
        topic.topic_name: [(each.partition_index, each.error_code) for each in topic.partitions]
        for topic in response.responses
    }
    assert found == answered


def test_a_group_with_a_partition_that_cannot_be_is_not_deleted_as_in_kafka(wire: Wire) -> None:
    topics = [{"topic_name": "t", "partitions": [{"partition_index": -1, "start_offset": 0}]}]
    assert wire.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="below", topics=topics).error_code == _FAILED
    (deleted,) = wire.call(ApiKey.DELETE_GROUPS, 2, groups_names=("below",)).results
    assert deleted.error_code == _FAILED
