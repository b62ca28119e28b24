"""We open directories that Kafka wrote, stopped cleanly or killed, and find in them what Kafka's consumers found.

`tests/golden/kafka_log_dirs` has them and says how they were made; this needs no Kafka.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import stratalog
from stratalog.config.topic import LogConfig
from stratalog.log.format.checkpoints import RECOVERY_POINTS, OffsetCheckpoint, PartitionMetadataFile
from stratalog.log.format.file_names import PARTITION_METADATA
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.testing.clock import ManualClock
from tests.golden.kafka_log_dirs.make import HERE, TOPIC, TOPIC_CONFIG, records
from tests.interop.contents import T0, consume, read_log

CONFIG = LogConfig.from_properties(TOPIC_CONFIG)
DIRECTORY = f"{TOPIC}-0"
NAMES = ("stopped", "killed")


def open_copy(name: str, place: Path, *, clean_shutdown: bool, recovery_point: int) -> PartitionLog:
    shutil.copytree(HERE / name / DIRECTORY, place / DIRECTORY)
    return PartitionLog.open(
        place / DIRECTORY,
        CONFIG,
        clean_shutdown=clean_shutdown,
        recovery_point=recovery_point,
        clock=ManualClock(T0 + 3_600_000),  # a day later the producers would be forgotten, here as in Kafka
    )


def recovery_point(name: str) -> int:
    return OffsetCheckpoint(HERE / name / RECOVERY_POINTS).read()[TOPIC, 0]


@pytest.fixture(params=["stopped", "stopped, all read again", "killed", "killed, all read again"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, PartitionLog]]:
    name, _, again = request.param.partition(", ")
    log = open_copy(
        name,
        tmp_path,
        clean_shutdown=name == "stopped" and not again,
        recovery_point=0 if again else recovery_point(name),
    )
    yield name, log
    log.close()


def batches(directory: Path) -> list[RecordBatch]:
    return [batch for path in sorted(directory.glob("*.log")) for batch in iter_batches(path.read_bytes())]


def test_every_record_is_read(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    assert read_log(log) == records(name)


def test_committed_records_are_distinguished_from_the_others(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    assert read_log(log, committed_only=True) == records(name, committed_only=True)


def test_the_state_of_the_log_is_that_of_its_files(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    found = batches(HERE / name / DIRECTORY)
    assert log.log_end_offset == found[-1].last_offset + 1
    assert [s.base_offset for s in log.segments] == [
        int(path.stem) for path in sorted((HERE / name / DIRECTORY).glob("*.log"))
    ]
    epochs: dict[int, int] = {}
    for batch in found:
        epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == sorted(epochs.items())
    assert log.topic_id == PartitionMetadataFile(HERE / name / DIRECTORY / PARTITION_METADATA).read()


def test_any_offset_and_any_time_is_found(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    log.update_high_watermark(log.log_end_offset)
    expected = [(r.timestamp_ms, r.offset) for b in batches(HERE / name / DIRECTORY) for r in b.records()]
    for _, offset in expected[::7]:
        data = log.read(offset, 1)
        assert data.slice is not None
        (batch,) = iter_batches(data.slice.read())
        assert batch.base_offset <= offset <= batch.last_offset
    for timestamp_ms, _ in expected[::13]:
        assert log.offset_for_timestamp(timestamp_ms) == next(pair for pair in expected if pair[0] >= timestamp_ms)


def test_a_batch_that_an_idempotent_producer_sends_again_is_known(opened: tuple[str, PartitionLog]) -> None:
    name, log = opened
    last = [b for b in batches(HERE / name / DIRECTORY) if b.base_sequence >= 0 and not b.is_transactional][-1]
    end_offset = log.log_end_offset
    as_sent = bytes(8) + bytes(last.as_memoryview())[8:]
    info = log.append_as_leader(as_sent, leader_epoch=last.partition_leader_epoch)
    assert info.duplicate
    assert (info.first_offset, info.last_offset) == (last.base_offset, last.last_offset)
    assert log.log_end_offset == end_offset


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_opening_and_closing_leaves_a_stopped_directory_as_it_was(tmp_path: Path) -> None:
    open_copy("stopped", tmp_path, clean_shutdown=True, recovery_point=recovery_point("stopped")).close()
    kafkas = files(HERE / "stopped" / DIRECTORY)
    # From the first of two shutdowns, and of no segment: Kafka removed it, too, when it next started (see `killed`).
    del kafkas["00000000000000000402.snapshot"]
    assert files(tmp_path / DIRECTORY) == kafkas


@pytest.mark.parametrize("lost", [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"])
def test_what_is_lost_is_made_again_as_kafka_made_it(tmp_path: Path, lost: str) -> None:
    shutil.copytree(HERE / "stopped" / DIRECTORY, tmp_path / DIRECTORY)
    for path in (tmp_path / DIRECTORY).iterdir():
        if path.name.endswith(lost):
            path.unlink()
    PartitionLog.open(tmp_path / DIRECTORY, CONFIG, clean_shutdown=False, recovery_point=0).close()
    ours, kafkas = files(tmp_path / DIRECTORY), files(HERE / "stopped" / DIRECTORY)
    assert {name: data for name, data in ours.items() if name.endswith(lost)} == {
        name: data for name, data in kafkas.items() if name.endswith(lost) and name in ours
    }
    assert any(name.endswith(lost) for name in ours)
    assert {name: data for name, data in ours.items() if name.endswith(".log")} == {
        name: data for name, data in kafkas.items() if name.endswith(".log")
    }


@pytest.mark.parametrize("name", NAMES)
def test_our_broker_serves_it(tmp_path: Path, name: str) -> None:
    data_dir = tmp_path / "broker"
    with stratalog.Broker(data_dir=data_dir) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 3})
        config = {key: value for key, value in TOPIC_CONFIG.items() if not key.startswith("internal.")}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(60)
    place = data_dir / DIRECTORY
    topic_id = PartitionMetadataFile(place / PARTITION_METADATA).read()
    assert isinstance(topic_id, UUID)
    shutil.rmtree(place)
    shutil.copytree(HERE / name / DIRECTORY, place)
    PartitionMetadataFile(place / PARTITION_METADATA).write(topic_id)
    with stratalog.Broker(data_dir=data_dir) as broker:
        assert consume(broker.bootstrap_servers, TOPIC) == records(name)
        assert consume(broker.bootstrap_servers, TOPIC, committed_only=True) == records(name, committed_only=True)
