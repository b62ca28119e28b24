"""Error codes in responses are counted by request, as Kafka's ErrorsPerSec does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

BATCH = build_batch([Record(0, 1_700_000_000_000, None, b"v")])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path, config={"auto.create.topics.enable": "false"}) as broker:
        broker.services.topics.create("t", 2)
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def counted(broker: Broker, request: str) -> dict[str, int]:
    return {error: count for name, error, count in broker.services.answered_errors.items() if name == request}


def topics(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def test_topics_and_partitions_count_one_by_one(broker: Broker, wire: Wire) -> None:
    for version in (0, 13):
        wire.call(ApiKey.METADATA, version, topics=topics("t", "unknown", "a b"))
    wire.call(ApiKey.METADATA, 13, topics=None)
    wire.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics("t", "unknown"), cursor=None)
    expected = {"NONE": 9, "UNKNOWN_TOPIC_OR_PARTITION": 2, "INVALID_TOPIC_EXCEPTION": 2}
    assert counted(broker, "Metadata") == expected
    assert counted(broker, "DescribeTopicPartitions") == {"NONE": 3, "UNKNOWN_TOPIC_OR_PARTITION": 1}


def test_requests_of_records_count_their_partitions(broker: Broker, wire: Wire) -> None:
    def produced(*partitions: int) -> dict[str, Any]:
        data = [{"index": index, "records": BATCH} for index in partitions]
        return {"acks": 1, "timeout": 10_000, "topic_data": [{"name": "t", "partition_data": data}]}

    wire.call(ApiKey.PRODUCE, 9, **produced(0, 1, 7))
    for _ in range(3):  # the first two make the template of those that follow
        wire.call(ApiKey.PRODUCE, 9, **produced(0))
    assert counted(broker, "Produce") == {"NONE": 5, "UNKNOWN_TOPIC_OR_PARTITION": 1}
    wanted = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 100} for index in (0, 7)]
    wire.call(
        ApiKey.FETCH, 12, max_wait=0, max_bytes=1000, session_epoch=-1, topics=[{"topic": "t", "partitions": wanted}]
    )
    assert counted(broker, "Fetch") == {"NONE": 2, "UNKNOWN_TOPIC_OR_PARTITION": 1}


def test_codes_of_any_depth_count(broker: Broker, wire: Wire) -> None:
    wire.call(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m")
    assert counted(broker, "Heartbeat") == {"UNKNOWN_MEMBER_ID": 1}
    asked = [{"name": "t", "partitions": [{"partition_index": index, "timestamp": -1} for index in (0, 1, 2)]}]
    wire.call(ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=asked)
    assert counted(broker, "ListOffsets") == {"NONE": 2, "UNKNOWN_TOPIC_OR_PARTITION": 1}
    created = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("new", "t")]
    wire.call(ApiKey.CREATE_TOPICS, 7, topics=created, timeout=10_000)
    assert counted(broker, "CreateTopics") == {"NONE": 1, "TOPIC_ALREADY_EXISTS": 1}
    resources = [{"resource_type": 2, "resource_name": name} for name in ("t", "unknown")]
    wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=resources)
    assert counted(broker, "DescribeConfigs") == {"NONE": 1, "UNKNOWN_TOPIC_OR_PARTITION": 1}
    wire.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    assert counted(broker, "DescribeLogDirs") == {"NONE": 2}


def test_a_failed_request_without_an_answer_counts(broker: Broker, wire: Wire) -> None:
    data = [{"index": 7, "records": BATCH}]
    wire.send(ApiKey.PRODUCE, 9, acks=0, timeout=10_000, topic_data=[{"name": "t", "partition_data": data}])
    wait_until(lambda: counted(broker, "Produce") == {"UNKNOWN_TOPIC_OR_PARTITION": 1}, "it is counted")
