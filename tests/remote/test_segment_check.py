from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from stratalog.errors import CorruptIndexError, CorruptRecordError
from stratalog.log.index.txn_index import AbortedTransaction
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.tier.segment_check import CheckedSegment, _CheckedBatches, check_segment
from stratalog.util.checksum import crc32c
from tests.remote.world import CONFIG, World

BIG = 5 * 1024 * 1024


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Two segments; the first is sealed."""
    with World(tmp_path) as world:
        world.append(15)
    log = PartitionLog.open(tmp_path / "t-0", CONFIG, clean_shutdown=True)
    assert len(log.segments) == 2
    return log


def _check(log: PartitionLog) -> CheckedSegment:
    return check_segment(log.segments[0], log.segments[1].base_offset)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_good_segment_tells_its_facts(log: PartitionLog) -> None:
    segment = log.segments[0]
    found = _check(log)
    assert found == CheckedSegment(
        size_bytes=segment.size_bytes,
        first_offset=0,
        last_offset=log.segments[1].base_offset - 1,
        max_timestamp_ms=segment.largest_timestamp(),
        block_facts=found.block_facts,
    )
    assert found.block_facts.checksums == (crc32c(segment.log_path.read_bytes()),)


def test_any_flipped_bit_of_the_records_that_matters_is_found_with_file_and_position(
    log: PartitionLog,
) -> None:
    segment = log.segments[0]
    size = segment.size_bytes
    leader_epoch = range(12, 16)  # outside the CRC, and any value is possible
    batch_size = 474
    for at in range(0, size, 7):
        if at % batch_size in leader_epoch:
            continue
        _flip(segment.log_path, at)
        with pytest.raises((CorruptRecordError, CorruptIndexError), match=segment.log_path.stem):
            _check(log)
        _flip(segment.log_path, at)
    _check(log)


def test_a_file_that_ends_within_a_batch_is_found(log: PartitionLog) -> None:
    segment = log.segments[0]
    data = segment.log_path.read_bytes()
    segment.log_path.write_bytes(data[:-1])
    with pytest.raises(CorruptRecordError, match="is not whole"):
        _check(log)


@pytest.mark.parametrize("at", [3, 7, -1, -8])
def test_an_offset_index_that_points_elsewhere_is_found(log: PartitionLog, at: int) -> None:
    _flip(log.segments[0].offset_index_path, at)
    with pytest.raises(CorruptIndexError, match=r"\.index"):
        _check(log)


def _future(data: bytearray) -> None:
    data[-12:-4] = (2**60).to_bytes(8, "big")


def _elsewhere(data: bytearray) -> None:
    data[-4:] = (2**30).to_bytes(4, "big")


@pytest.mark.parametrize("damage", [_future, _elsewhere])
def test_a_time_index_that_does_not_fit_the_records_is_found(
    log: PartitionLog, damage: Callable[[bytearray], None]
) -> None:
    path = log.segments[0].time_index_path
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match=r"\.timeindex"):
        _check(log)


def test_offsets_of_the_next_segment_do_not_belong_here(log: PartitionLog) -> None:
    with pytest.raises(CorruptRecordError, match="and below 50"):
        check_segment(log.segments[0], 50)


def test_batches_larger_than_what_is_read_at_once_are_checked(tmp_path: Path) -> None:
    config = replace(CONFIG, segment_bytes=4 * BIG, max_message_bytes=2 * BIG)
    log = PartitionLog.open(tmp_path / "t-0", config)
    for size in (10, BIG, 20, BIG):
        log.append_as_leader(
            build_batch([Record(offset=0, timestamp_ms=1, key=None, value=bytes(size))]), leader_epoch=0
        )
    log.roll()
    assert check_segment(log.segments[0], 4).last_offset == 3
    _flip(log.segments[0].log_path, BIG)
    with pytest.raises(CorruptRecordError, match="does not match its CRC"):
        check_segment(log.segments[0], 4)
    log.close()


@pytest.mark.parametrize("seed", range(6))
def test_windows_of_batches_tell_what_each_batch_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    log = PartitionLog.open(tmp_path / "t-0", replace(CONFIG, segment_bytes=16 * BIG, max_message_bytes=2 * BIG))
    offset = 0
    for _ in range(random.randrange(1, 300)):
        size = BIG if seed == 5 and random.random() < 0.02 else random.choice((0, 9, 60_000))
        count = random.randrange(1, 4)
        batch = build_batch(
            [Record(offset + n, random.randrange(1 << 40), None, bytes(size)) for n in range(count)],
            base_offset=offset,
            log_append_time_ms=random.choice((None, None, random.randrange(1 << 40))),
            delete_horizon_ms=random.choice((None, None, 77)),
        )
        log.append_as_follower(batch)
        offset += count + random.choice((0, 0, 5))
    log.roll()
    found = _check(log)
    monkeypatch.setattr(_CheckedBatches, "windows", lambda *_: 0)
    assert _check(log) == found
    log.close()


def _entries(log: PartitionLog) -> dict[str, Path]:
    """The indexes of the first segment, all read into memory, with an aborted transaction among them."""
    segment = log.segments[0]
    segment.txn_index.append(AbortedTransaction(7, 1, 3, 4))
    assert segment.offset_index.lookup(3).offset <= 3
    assert list(segment.offset_index)
    assert segment.time_index.lookup(0)
    assert segment.time_index.last_entry
    assert segment.txn_index.all
    return {
        "offset": segment.offset_index_path,
        "time": segment.time_index_path,
        "transaction": segment.txn_index.path,
    }


def _first_byte(data: bytes) -> bytes:
    return bytes([data[0] ^ 0x80]) + data[1:]


def _nothing(data: bytes) -> bytes:
    return b""


def _part_of_an_entry_less(data: bytes) -> bytes:
    return data[:-1]


def _twice(data: bytes) -> bytes:
    return data + data


@pytest.mark.parametrize("damage", [_first_byte, _nothing, _part_of_an_entry_less, _twice])
@pytest.mark.parametrize("kind", ["offset", "time", "transaction"])
def test_an_index_that_changed_on_disk_since_it_was_read_is_found(
    log: PartitionLog, kind: str, damage: Callable[[bytes], bytes]
) -> None:
    path = _entries(log)[kind]
    _check(log)
    data = path.read_bytes()
    path.write_bytes(damage(data))
    with pytest.raises(CorruptIndexError, match=path.name):
        _check(log)
    path.write_bytes(data)
    _check(log)
