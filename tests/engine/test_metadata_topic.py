from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.partition import OfflinePartition, Partition
from stratalog.engine.tiering.metadata_log import LocalMetadataLog, events_of
from stratalog.engine.tiering.metadata_topic import open_metadata_log
from stratalog.engine.tiering.metadata_topic_settings import REMOTE_LOG_METADATA_TOPIC
from stratalog.errors import CorruptRecordError, DataDirError, InvalidConfigError, KafkaStorageError
from stratalog.log.format.file_names import log_file
from stratalog.records.batch import batch_at, iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.metadata.snapshot import SNAPSHOT_FILE
from stratalog.testing.clock import ManualClock


@dataclass(frozen=True)
class Made:
    partition_count: int


def config(**values: str) -> BrokerConfig:
    return BrokerConfig.from_properties({name.replace("_", "."): value for name, value in values.items()})


def _offline(topic: str, number: int) -> Partition:
    return OfflinePartition(topic, number, uuid4(), KafkaStorageError("the disk is gone"))


def _made(name: str, count: int, configs: Mapping[str, str]) -> Made:
    return Made(count)


def test_another_count_of_partitions_than_configured_is_refused_with_what_to_set() -> None:
    with pytest.raises(InvalidConfigError, match=r"has 50 partitions, but .*num\.partitions=7.*set it to 50"):
        open_metadata_log(
            config(remote_log_metadata_topic_num_partitions="7"), lambda *_: Made(50), _offline, ManualClock()
        )


def test_a_start_tries_as_long_as_configured_and_fails_with_a_clear_error() -> None:
    clock, tries = ManualClock(), []

    def ensure(name: str, count: int, configs: Mapping[str, str]) -> Made:
        tries.append(name)
        return Made(count)

    settings = config(
        remote_log_metadata_initialization_retry_max_timeout_ms="1000",
        remote_log_metadata_initialization_retry_interval_ms="250",
    )
    with pytest.raises(DataDirError, match=r"the disk is gone .*max\.timeout\.ms=1000.*--metadata-only"):
        open_metadata_log(settings, ensure, _offline, clock)
    assert len(tries) == 5


def test_what_passes_is_waited_for(tmp_path: Path) -> None:
    logs = LogManager([tmp_path], config(), cluster_id="c")
    spec = TopicSpec(REMOTE_LOG_METADATA_TOPIC, uuid4(), 50, LogConfig.from_properties({}, None))
    logs.start([spec])
    failures = [KafkaStorageError("not yet"), OSError("not yet")]

    def ensure(name: str, count: int, configs: Mapping[str, str]) -> Made:
        if failures:
            raise failures.pop()
        return Made(count)

    assert open_metadata_log(config(), ensure, logs.get, ManualClock()).partition_count == 50
    logs.close()


_TOPIC_ID = uuid4()


def _opened(data_dir: Path) -> tuple[LogManager, LocalMetadataLog]:
    logs = LogManager([data_dir], config(), cluster_id="c")
    logs.start([TopicSpec(REMOTE_LOG_METADATA_TOPIC, _TOPIC_ID, 1, LogConfig.from_properties({}, None))])
    return logs, LocalMetadataLog(1, lambda number: logs.get(REMOTE_LOG_METADATA_TOPIC, number))


@pytest.fixture
def log(tmp_path: Path):  # type: ignore[no-untyped-def]
    logs = LogManager([tmp_path], config(), cluster_id="c")
    logs.start([TopicSpec(REMOTE_LOG_METADATA_TOPIC, uuid4(), 1, LogConfig.from_properties({}, None))])
    yield LocalMetadataLog(1, lambda number: logs.get(REMOTE_LOG_METADATA_TOPIC, number))
    logs.close()


def test_events_are_read_back_from_any_offset(log: LocalMetadataLog) -> None:
    values = [b"a", b"", b"c" * 200, b"d" * 20_000]
    assert [log.append(0, value, 1_000) for value in values] == [0, 1, 2, 3]
    for offset in range(5):
        found, next_offset = log.read(0, offset, 1 << 20)
        assert found == list(enumerate(values))[offset:]
        assert next_offset == 4


def test_a_damaged_batch_is_left_out_with_a_line_and_the_others_are_read(
    log: LocalMetadataLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (b"first", b"second", b"third"):
        log.append(0, value, 1_000)
    path = tmp_path / f"{REMOTE_LOG_METADATA_TOPIC}-0" / log_file(0)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"second", b"sEcond"))
    assert log.read(0, 0, 1 << 20).events == [(0, b"first"), (2, b"third")]
    assert "batch at offset 1 is damaged" in caplog.text
    assert "--metadata-only" in caplog.text


def test_bytes_that_are_no_batches_end_reading_with_what_to_do(log: LocalMetadataLog, tmp_path: Path) -> None:
    for value in (b"first", b"second", b"third"):
        log.append(0, value, 1_000)
    path = tmp_path / f"{REMOTE_LOG_METADATA_TOPIC}-0" / log_file(0)
    data = bytearray(path.read_bytes())
    second = batch_at(bytes(data)).size
    data[second + 8 : second + 12] = b"\0\0\0\1"
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="--metadata-only"):
        log.read(0, 0, 1 << 20)


@pytest.mark.parametrize(("place", "count"), [("value", 1), ("value", 2), ("magic", 1)])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_flipped_bit_costs_a_start_only_the_events_of_its_batch(
    tmp_path: Path, damaged: int, count: int, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    logs, log = _opened(tmp_path)
    values = [b"first", b"second", b"third"]
    for value in values:
        records = [Record(number, 1_000, None, value) for number in range(count)]
        logs.partitions(REMOTE_LOG_METADATA_TOPIC)[0].append(build_batch(records), origin="internal")
    logs.close()
    path = tmp_path / f"{REMOTE_LOG_METADATA_TOPIC}-0" / log_file(0)
    data = bytearray(path.read_bytes())
    starts = [batch.start for batch in iter_batches(bytes(data))]
    data[starts[damaged] + 16 if place == "magic" else data.index(values[damaged])] ^= 1
    path.write_bytes(data)
    logs, log = _opened(tmp_path)
    found, offset = [], 0
    while offset < log.end_offset(0):
        events, offset = log.read(0, offset)
        found += events
    logs.close()
    everything = list(enumerate(value for value in values for _ in range(count)))
    assert found == [event for event in everything if event[1] != values[damaged]]
    assert f"batch at offset {damaged * count} is damaged" in caplog.text
    assert "--metadata-only" in caplog.text


@pytest.mark.parametrize("place", [8, 11, 16], ids=["length", "low length", "magic"])
def test_a_destroyed_header_of_the_last_batch_costs_its_events(
    tmp_path: Path, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    """However many they are: nothing sound is behind them, so nothing else can be lost by going on."""
    logs, log = _opened(tmp_path)
    for count in (1, 3):
        records = [Record(number, 1_000, None, b"%d" % number) for number in range(count)]
        logs.partitions(REMOTE_LOG_METADATA_TOPIC)[0].append(build_batch(records), origin="internal")
    logs.close()
    path = tmp_path / f"{REMOTE_LOG_METADATA_TOPIC}-0" / log_file(0)
    data = bytearray(path.read_bytes())
    last = [batch.start for batch in iter_batches(bytes(data))][-1]
    data[last + place] ^= 1
    path.write_bytes(data)
    logs, log = _opened(tmp_path)
    found, offset = [], 0
    while offset < log.end_offset(0):
        events, offset = log.read(0, offset)
        found += events
    assert found == [(0, b"0")]
    assert "events 1 to 3 are left out" in caplog.text
    assert log.append(0, b"next", 1_000) == 4
    assert log.read(0, 4).events == [(4, b"next")]
    logs.close()


def test_a_snapshot_lies_beside_the_segments_and_survives_a_reopening(log: LocalMetadataLog, tmp_path: Path) -> None:
    assert log.read_snapshot(0) is None
    log.write_snapshot(0, b"all of it")
    assert log.read_snapshot(0) == b"all of it"
    assert (tmp_path / f"{REMOTE_LOG_METADATA_TOPIC}-0" / SNAPSHOT_FILE).read_bytes() == b"all of it"


@pytest.mark.parametrize("size", [0, 1, 50, 57, 58, 120, 8_000, 9_000, 70_000])
@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("headers", [(), (("h", b"v"),)])
def test_the_value_cut_out_of_a_batch_is_the_one_that_decoding_gives(
    size: int, key: bytes | None, count: int, headers: tuple[tuple[str, bytes], ...]
) -> None:
    records = [Record(number, 5 + number, key, bytes([number + 1]) * size, headers) for number in range(count)]
    batch = batch_at(build_batch(records))
    assert events_of(batch) == [(record.offset, bytes(record.value or b"")) for record in batch.records()]
