"""What clients see of a log directory that failed: KAFKA_STORAGE_ERROR from its partitions, everything from the
others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.wire import Wire

from stratalog.broker.security import Listener
from stratalog.broker.server.server import Broker
from stratalog.broker.services import BrokerServices, start_services
from stratalog.broker.storage import BrokerStorage
from stratalog.errors import DataDirError, KafkaStorageError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

STORAGE_ERROR = KafkaStorageError.code
RECORDS = build_batch([Record(0, 1_700_000_000_000, None, b"x")])


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [(tmp_path / name).resolve() for name in "ab"]


@pytest.fixture
def broker(dirs: list[Path]) -> Iterator[Broker]:
    with Broker(data_dir=dirs) as broker:
        broker.services.topics.create("orders", 2)
        yield broker


def partition_in(broker: Broker, directory: Path) -> int:
    (found,) = [p for p in broker.services.logs.partitions("orders") if p.log.directory.parent == directory]
    return found.partition


def answers(broker: Broker, number: int) -> list[int]:
    """Error codes of Produce, Fetch and ListOffsets for one partition."""
    with Wire(broker.bootstrap_servers) as wire:
        data = [{"name": "orders", "partition_data": [{"index": number, "records": RECORDS}]}]
        produced = wire.call(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout=1_000, topic_data=data)
        part = {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1_000}
        fetched = wire.call(
            ApiKey.FETCH,
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1_000,
            isolation_level=0,
            topics=[{"topic": "orders", "partitions": [part]}],
        )
        listed = wire.call(
            ApiKey.LIST_OFFSETS,
            4,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": "orders", "partitions": [{"partition_index": number, "timestamp": -1}]}],
        )
    return [
        int(produced.responses[0].partition_responses[0].error_code),
        int(fetched.responses[0].partitions[0].error_code),
        int(listed.topics[0].partitions[0].error_code),
    ]


def described(broker: Broker) -> dict[str, tuple[int, int]]:
    """Of each directory: error code, and how many partitions are reported."""
    with Wire(broker.bootstrap_servers) as wire:
        results = wire.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results
    return {
        entry.log_dir: (int(entry.error_code), sum(len(topic.partitions) for topic in entry.topics))
        for entry in results
    }


def test_partitions_of_a_directory_that_fails_while_it_serves_say_so(broker: Broker, dirs: list[Path]) -> None:
    bad, good = (partition_in(broker, directory) for directory in dirs)
    logs = broker.services.logs
    assert answers(broker, bad) == [0, 0, 0]
    logs.dirs.fail(dirs[0], "Input/output error")
    logs.put_offline(dirs[0])
    assert answers(broker, bad) == [STORAGE_ERROR] * 3
    assert answers(broker, good) == [0, 0, 0]
    assert described(broker) == {str(dirs[0]): (STORAGE_ERROR, 0), str(dirs[1]): (0, 1)}


def test_partitions_of_a_directory_that_cannot_be_used_at_the_start_say_so(dirs: list[Path]) -> None:
    with Broker(data_dir=dirs) as broker:
        broker.services.topics.create("orders", 2)
        bad, good = (partition_in(broker, directory) for directory in reversed(dirs))
    (dirs[1] / "meta.properties").write_bytes(b"")
    with Broker(data_dir=dirs) as broker:
        assert answers(broker, bad) == [STORAGE_ERROR] * 3
        assert answers(broker, good) == [0, 0, 0]
        assert described(broker) == {str(dirs[0]): (0, 1), str(dirs[1]): (STORAGE_ERROR, 0)}


def test_without_the_directory_of_the_metadata_nothing_is_served(dirs: list[Path]) -> None:
    with Broker(data_dir=dirs):
        pass
    (dirs[0] / "meta.properties").write_bytes(b"")
    with pytest.raises(DataDirError, match=r"the first log directory holds the metadata"):
        Broker(data_dir=dirs)


def test_a_broker_whose_last_directory_fails_ends_with_one_line(broker: Broker, dirs: list[Path]) -> None:
    for directory in dirs:
        broker.services.logs.dirs.fail(directory, "Input/output error")
        broker.services.logs.put_offline(directory)
    broker._thread.join(60)
    assert isinstance(broker.failure, DataDirError)
    assert "all log directories have failed" in str(broker.failure)


def test_a_broker_whose_directories_fail_as_it_starts_is_never_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(storage: BrokerStorage, listener: Listener, loop: asyncio.AbstractEventLoop) -> BrokerServices:
        services = start_services(storage, listener, loop)
        for directory in list(storage.logs.dirs.live):
            storage.logs.dirs.fail(directory.path, "on purpose")
        return services

    monkeypatch.setattr("stratalog.broker.server.server.start_services", start)
    with pytest.raises(DataDirError, match="does not start: all log directories have failed"):
        Broker(data_dir=tmp_path)
