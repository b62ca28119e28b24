"""Logs that still hold message formats 0 and 1: opened, recovered, searched and read as they are; new is format 2."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import InvalidRecordError
from stratalog.log.append.preparation import prepare_follower_append
from stratalog.log.format.values import EpochEntry
from stratalog.log.partition_log import PartitionLog
from stratalog.records import Codec, Record, RecordBatch, build_batch, iter_batches
from stratalog.testing.clock import ManualClock
from stratalog.testing.legacy_builder import build_legacy
from tests.log.parity.scenario import files_of, follower, live_as_kafka, live_as_stratalog
from tests.records.legacy_cases import KAFKA_READS, log_bytes
from tests.support.reference_kafka import require_reference_kafka

NOW = 1_700_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
#: An index entry for every batch but the first.
EVERY_BATCH = LogConfig(index_interval_bytes=1, retention_ms=-1, segment_ms=1 << 50)


def opened(directory: Path, config: LogConfig = EVERY_BATCH, *, clean: bool = False) -> PartitionLog:
    log = PartitionLog.open(directory, config, clock=ManualClock(NOW), clean_shutdown=clean)
    log.update_high_watermark(log.log_end_offset)
    return log


@pytest.fixture(params=["upgraded", "format-0", "format-1", "compacted-gaps"])
def name(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@pytest.fixture
def directory(tmp_path: Path, name: str) -> Path:
    found = tmp_path / "orders-0"
    found.mkdir()
    (found / "00000000000000000000.log").write_bytes(log_bytes(name))
    return found


def kafkas_records(name: str) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record that Kafka reads."""
    for batch in KAFKA_READS[name]:
        for record in batch["records"]:
            yield record["offset"], record["timestamp_ms"]


def test_every_offset_is_found_and_the_bytes_are_as_they_were(directory: Path, name: str) -> None:
    data = log_bytes(name)
    for clean in (False, True):
        log = opened(directory, clean=clean)
        batches = KAFKA_READS[name]
        assert log.log_end_offset == batches[-1]["last_offset"] + 1
        assert log.size_bytes == len(data)
        position = 0
        for batch in batches:
            for offset in range(batch["base_offset"], batch["last_offset"] + 1):
                found = log.active_segment.translate_offset(offset)
                assert found == (batch["base_offset"], position, batch["size"])
                part = log.read(offset, 1 << 20)
                assert part.slice is not None
                assert part.start.offset == batch["base_offset"]
                assert part.slice.read() == data[position:]
            position += batch["size"]
        assert log.active_segment.offset_index.entries > 0
        log.close()


def test_records_are_found_by_time(directory: Path, name: str) -> None:
    log = opened(directory)
    records = list(kafkas_records(name))
    for wanted in {timestamp + d for _, timestamp in records for d in (-1, 0, 1) if timestamp > 0}:
        expected = next(((t, o) for o, t in records if t >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected
    largest = max(timestamp for _, timestamp in records)
    if largest > 0:
        newest = next(o for o, t in records if t == largest)
        epoch = log.leader_epochs.epoch_for_offset(newest)  # old formats have none
        assert log.max_timestamp() == (largest, newest, -1 if epoch is None else epoch)
    else:
        assert log.max_timestamp() is None


def test_lost_indexes_are_built_again(directory: Path, name: str) -> None:
    opened(directory).close()
    before = files_of(directory)
    for path in directory.glob("*index"):
        path.unlink()
    opened(directory, clean=True).close()
    assert files_of(directory) == before


def test_a_torn_tail_goes_to_the_last_whole_message(directory: Path, name: str) -> None:
    data = log_bytes(name)
    ends = [batch.start + batch.size for batch in iter_batches(data)]
    for cut in random.Random(1).sample(range(1, len(data)), 12):
        (directory / "00000000000000000000.log").write_bytes(data[:cut])
        log = opened(directory)
        assert log.size_bytes == max((end for end in ends if end <= cut), default=0)
        log.close()
        shutil.rmtree(directory)
        directory.mkdir()


def test_a_flipped_bit_in_any_message_is_where_the_log_ends(directory: Path, name: str) -> None:
    data = log_bytes(name)
    for batch in iter_batches(data):
        damaged = bytearray(data)
        damaged[batch.start + batch.size - 1] ^= 1
        (directory / "00000000000000000000.log").write_bytes(damaged)
        log = opened(directory)
        assert log.size_bytes == batch.start
        log.close()
        shutil.rmtree(directory)
        directory.mkdir()


def test_truncation_takes_a_wrapper_whole(directory: Path, name: str) -> None:
    last = KAFKA_READS[name][-1]
    log = opened(directory)
    assert log.truncate_to(last["last_offset"])
    assert log.size_bytes == len(log_bytes(name)) - last["size"]
    assert log.log_end_offset == last["last_offset"]


def test_the_log_goes_on_with_format_2(directory: Path, name: str) -> None:
    log = opened(directory)
    end = log.log_end_offset
    log.append_as_leader(build_batch([Record(0, NOW, b"k", b"v")]), leader_epoch=9)
    log.update_high_watermark(end + 1)
    part = log.read(0, 1 << 20).slice
    assert part is not None
    *old, new = iter_batches(part.read())
    assert (new.magic, new.base_offset, new.partition_leader_epoch) == (2, end, 9)
    assert b"".join(bytes(batch.as_memoryview()) for batch in old) == log_bytes(name)


# --- appended -------------------------------------------------------------------------------------------------------


def _records(base: int = 0) -> list[Record]:
    return [Record(base + i, NOW - 10 + i, b"k%d" % i, b"v%d" % i) for i in range(3)]


@pytest.mark.parametrize("compression", ["producer", "zstd"])
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_that_are_appended_become_one_batch_of_format_2(
    tmp_path: Path, magic: int, codec: Codec, compression: str
) -> None:
    """With their timestamps; -1 for those of format 0, which had none."""
    log = opened(tmp_path / "orders-0", LogConfig(compression_type=compression))
    log.append_as_leader(build_batch([Record(0, NOW, None, b"before")]), leader_epoch=3)
    info = log.append_as_leader(build_legacy(_records(), magic=magic, codec=codec), leader_epoch=3)
    assert (info.first_offset, info.last_offset) == (1, 3)
    log.update_high_watermark(4)
    part = log.read(1, 1 << 20).slice
    assert part is not None
    (batch,) = iter_batches(part.read())
    batch.ensure_valid()
    assert (batch.magic, batch.partition_leader_epoch) == (2, 3)
    assert batch.codec is (codec if compression == "producer" else Codec.ZSTD)
    expected = [Record(1 + r.offset, r.timestamp_ms if magic else -1, r.key, r.value) for r in _records()]
    assert list(batch.records()) == expected
    assert batch.max_timestamp == info.max_timestamp == max(r.timestamp_ms for r in expected)


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_the_brokers_time_is_put_into_what_is_converted(tmp_path: Path, magic: int, codec: Codec) -> None:
    log = opened(tmp_path / "orders-0", LogConfig(message_timestamp_type="LogAppendTime"))
    info = log.append_as_leader(build_legacy(_records(), magic=magic, codec=codec), leader_epoch=0)
    assert info.log_append_time == info.max_timestamp == NOW
    batch = RecordBatch((tmp_path / "orders-0" / "00000000000000000000.log").read_bytes())
    assert {record.timestamp_ms for record in batch.records()} == {NOW}


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_replica_takes_messages_as_they_are_and_forgets_the_epochs_before(
    tmp_path: Path, magic: int, codec: Codec
) -> None:
    log = opened(tmp_path / "orders-0")
    log.append_as_follower(build_batch([Record(0, NOW, None, None)], partition_leader_epoch=5))
    assert log.leader_epochs.entries == [EpochEntry(5, 0)]
    old = build_legacy(_records(1), magic=magic, codec=codec)
    new = build_batch([Record(4, NOW, None, None)], base_offset=4, partition_leader_epoch=7)
    log.append_as_follower(old + new)
    assert log.leader_epochs.entries == [EpochEntry(7, 4)]
    assert (tmp_path / "orders-0" / "00000000000000000000.log").read_bytes().endswith(old + new)
    with pytest.raises(InvalidRecordError, match="expected at least"):
        prepare_follower_append(old, log_end_offset=2)


# --- beside Kafka ---------------------------------------------------------------------------------------------------


def _life(seed: int) -> list[str]:
    """A replica that gets old and new formats, in small segments, restarted and cut."""
    pick, offset, directory = random.Random(seed), 0, f"{seed}/orders-0"
    config = (
        f"internal.segment.bytes={pick.choice((400, 2_000))} index.interval.bytes={pick.choice((0, 100, 4_096))}"
        " segment.index.bytes=4096 retention.ms=-1"
    )
    lines = [f"time {NOW}", f"open {directory} clean 0 0 - {config}"]
    for step in range(60):
        records = [
            Record(
                offset + i,
                NOW + step * 10 - pick.choice((0, 3, 50)),
                pick.choice((None, b"k")),
                b"v" * pick.choice((0, 40)),
            )
            for i in range(pick.choice((1, 2, 4)))
        ]
        offset += len(records) + pick.choice((0, 0, 2))
        magic, codec = pick.choice((0, 1, 1, 2)), pick.choice(OLD_CODECS)
        if magic == 2:
            batch = build_batch(records, base_offset=records[0].offset, codec=codec, partition_leader_epoch=step // 9)
        else:
            append_time = NOW + step * 10 if pick.random() < 0.2 else None
            batch = build_legacy(records, magic=magic, codec=codec, log_append_time_ms=append_time)
        lines.append(follower(batch))
        if step % 13 == 12:
            lines += ["hw end", "offsets", "close"]
            lines += [f"open {directory} {pick.choice(('clean', 'unclean'))} 0 0 - {config}", "offsets"]
        if step % 29 == 28:
            lines += [f"truncate {offset - 5}", "offsets"]
            offset -= 5
    return [*lines, "hw end", "offsets", "close"]


@pytest.mark.interop
def test_logs_with_old_formats_live_as_beside_kafka(tmp_path: Path) -> None:
    require_reference_kafka()
    lives = {seed: _life(seed) for seed in range(4)}
    theirs = iter(live_as_kafka([line for lines in lives.values() for line in lines], tmp_path / "kafka"))
    for seed, lines in lives.items():
        for number, (line, our_answer) in enumerate(
            zip(lines, live_as_stratalog(lines, tmp_path / "ours"), strict=True)
        ):
            their_answer = next(theirs)
            if their_answer.startswith("appended -1 "):  # Kafka does not look for the first offset in a wrapper
                our_answer = f"appended -1 {our_answer.split(' ')[2]}"
            assert our_answer == their_answer, f"seed {seed}, line {number}: {line[:120]}"
        kafkas = files_of(tmp_path / "kafka" / str(seed))
        assert files_of(tmp_path / "ours" / str(seed)) == kafkas
