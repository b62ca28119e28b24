"""A deletion that does not fit in one batch of `__consumer_offsets` is refused as a whole, as by Kafka 4.4.0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.groups.scenario import await_coordinator
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka
from tests.support.wire import Wire

from stratalog.broker import coordinator_log
from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey

TOPIC = "orders-" + 190 * "x"
COUNT = 20
#: More than the tombstones of a few commits, less than those of all.
BATCH_BYTES_MAX = 2000
OK, UNKNOWN_SERVER_ERROR, GROUP_ID_NOT_FOUND = 0, -1, 69
CONFIG = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


def converse(wire: Wire) -> list[Any]:
    """Delete a large group beside a small one, then its commits, then a few of them; what came of each."""
    topic = {"name": TOPIC, "num_partitions": COUNT, "replication_factor": 1}
    wire.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=30_000, validate_only=False)
    await_coordinator(wire)
    for group, count in (("large", COUNT), ("small", 1)):
        partitions = [{"partition_index": index, "committed_offset": 1} for index in range(count)]
        committed = wire.call(
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[{"name": TOPIC, "partitions": partitions}],
        )
        assert {each.error_code for each in committed.topics[0].partitions} == {0}
    limit = {"name": "max.message.bytes", "config_operation": 0, "value": str(BATCH_BYTES_MAX)}
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets", "configs": [limit]}
    (altered,) = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False).responses
    assert altered.error_code == 0, altered

    def left() -> int:
        found = wire.call(ApiKey.OFFSET_FETCH, 5, group_id="large", topics=None)
        # A set: behind a deletion that it has taken back, Kafka lists each commit twice.
        return len({each.partition_index for topic in found.topics for each in topic.partitions})

    def delete_groups(*groups: str) -> list[int]:
        results = wire.call(ApiKey.DELETE_GROUPS, 2, groups_names=groups).results
        return [int(each.error_code) for each in sorted(results, key=lambda each: groups.index(each.group_id))]

    def delete_commits(numbers: range) -> tuple[int, set[int]]:
        partitions = [{"partition_index": number} for number in numbers]
        answer = wire.call(
            ApiKey.OFFSET_DELETE, 0, group_id="large", topics=[{"name": TOPIC, "partitions": partitions}]
        )
        return int(answer.error_code), {int(each.error_code) for topic in answer.topics for each in topic.partitions}

    return [
        (delete_groups("large"), left()),
        (delete_commits(range(COUNT)), left()),
        (delete_commits(range(3)), left()),
        (delete_groups("small"), left()),
        *((delete_commits(range(first, first + 3)), left()) for first in range(3, 18, 3)),
        (delete_groups("large"), left()),
        (delete_groups("large"), left()),
    ]


EXPECTED = [
    ([UNKNOWN_SERVER_ERROR], 20),
    ((UNKNOWN_SERVER_ERROR, set()), 20),
    ((OK, {OK}), 17),
    ([OK], 17),
    *(((OK, {OK}), count) for count in (14, 11, 8, 5, 2)),
    ([OK], 0),
    ([GROUP_ID_NOT_FOUND], 0),
]


def test_of_a_deletion_that_is_too_large_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_log, "_PIECE_BYTES", 500)  # what may go in pieces does
    config = {**CONFIG, "log.cleaner.enable": "false"}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        assert converse(wire) == EXPECTED


@pytest.mark.interop
def test_kafka_does_the_same(tmp_path: Path) -> None:
    require_reference_kafka()
    with ReferenceKafka(tmp_path, config=CONFIG) as kafka, Wire(kafka.bootstrap_servers) as wire:
        assert converse(wire) == EXPECTED
