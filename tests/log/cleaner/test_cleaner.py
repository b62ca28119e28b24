"""One cleaning of one log, seen from outside."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path

import pytest

from stratalog.errors import CorruptRecordError
from stratalog.log.cleaner.cleaner import CleaningAborted
from stratalog.log.producers.producer_state import EXPIRATION_MS_DEFAULT
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec, compress
from stratalog.records.record import Record
from stratalog.testing.legacy_builder import build_legacy
from tests.log.cleaner.compacted import NOW_MS, RETENTION_MS, Compacted


def test_a_cleaning_leaves_the_newest_of_each_key_at_its_offset(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.fill(5, distinct=7)
    before = log.records()
    end = log.log.active_segment.base_offset
    newest = {record.key: record.offset for record in before if record.offset < end}
    result = log.clean()
    assert result.next_dirty_offset == end
    assert log.records() == [r for r in before if r.offset >= end or newest[r.key] == r.offset]
    assert log.log.log_end_offset == len(before)


def test_a_cleaned_log_opens_again_and_says_the_same(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.fill(5, distinct=3)
    log.clean()
    before = log.records()
    log.log.close()
    log.log = log.opened()
    assert log.records() == before
    log.clean(first=0)
    assert log.records() == before


def test_several_cleanings_do_what_the_map_is_too_small_for(tmp_path: Path) -> None:
    log = Compacted(tmp_path, slots=10)
    log.fill(6)
    keys = log.keys()
    for key in keys:
        log.put(key, b"newer")
    log.roll()
    ends = []
    while log.dirty < log.log.active_segment.base_offset:
        ends.append(log.clean().next_dirty_offset)
    assert len(ends) > len(keys) // 5
    assert ends == sorted(set(ends))
    assert sorted(log.keys()) == sorted(keys)
    assert all(record.value == b"newer" for record in log.records())


def test_a_map_that_is_full_ends_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    log = Compacted(tmp_path, slots=10)
    records = [Record(n, NOW_MS, b"%d" % n, b"v") for n in range(20)]
    log.append(build_batch(records))
    log.roll()
    assert log.clean().next_dirty_offset == 9
    assert log.clean().next_dirty_offset == 18
    assert log.clean().next_dirty_offset == 20
    assert log.records() == records


def test_a_cleaning_goes_as_far_as_it_is_reported(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.fill(6, distinct=3)
    end = log.log.segments[3].base_offset
    before = log.records()
    assert log.clean(end=end).next_dirty_offset == end
    assert [r for r in log.records() if r.offset >= end] == [r for r in before if r.offset >= end]
    assert [r.offset for r in log.records() if r.offset < end] == [end - 3, end - 2, end - 1]


def test_what_is_clean_is_compared_with_what_is_dirty(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    for key in (0, 1, 2):
        log.put(key, b"old")
    log.roll()
    log.clean()
    log.put(1, b"new")
    log.roll()
    log.clean()
    assert log.offsets() == [0, 2, 3]


def test_tombstones_get_a_horizon_then_go(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.put(0, 1)
    log.put(1, 1)
    log.put(0, None)
    log.roll()
    log.clean()
    assert log.offsets() == [1, 2]
    assert log.batches()[-1].delete_horizon_ms == NOW_MS + RETENTION_MS
    log.clock.advance(RETENTION_MS - 1)
    log.clean(first=0)
    assert log.offsets() == [1, 2], "a reader may still be on its way to the tombstone"
    assert log.batches()[-1].delete_horizon_ms == NOW_MS + RETENTION_MS, "the horizon does not move"
    log.clock.advance(1)
    log.clean(first=0)
    assert log.offsets() == [1]


def test_records_without_a_key_go_and_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Compacted(tmp_path)
    log.follow(0, 1, None, None, 2)
    log.roll()
    log.put(3)
    stats = log.clean().stats
    assert log.keys() == [1, 2, 3]
    assert stats.invalid_messages_read == 2
    assert "dropped 2 records without a key" in caplog.text


@pytest.mark.parametrize("offset", [500, 2**31, 2**40])
def test_offsets_that_no_one_has_are_passed_over(tmp_path: Path, offset: int) -> None:
    log = Compacted(tmp_path)
    log.follow(0, 1)
    log.roll()
    log.follow(offset, 1)
    log.roll()
    assert log.clean().next_dirty_offset == offset + 1
    assert log.offsets() == [offset]


def test_buffers_of_no_size_hold_a_header(tmp_path: Path) -> None:
    log = Compacted(tmp_path, io_bytes=0)
    log.fill(3, distinct=2)
    log.clean()
    assert len(log.offsets()) == 3


def test_the_stats_add_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = Compacted(tmp_path)
    log.fill(4, distinct=5)
    end = log.log.active_segment.base_offset
    size = sum(segment.size_bytes for segment in log.log.segments[:-1])
    stats = log.clean().stats
    assert (stats.messages_read, stats.messages_written) == (end, 5)
    assert (stats.map_messages_read, stats.map_bytes_read, stats.bytes_read) == (end, size, size)
    assert stats.bytes_written == sum(segment.size_bytes for segment in log.log.segments[:-1])
    assert stats.buffer_utilization == 5 / 1_000
    assert stats.segments_cleaned == 3
    assert stats.elapsed_seconds == 0.0
    assert f"latest-0: cleaned up to offset {end} (dirty from 0)" in caplog.text


def test_segments_are_merged_up_to_the_size_of_one(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.fill(9, distinct=2)
    log.clean()
    log.clean(first=log.dirty - 1)
    assert len(log.log.segments) == 2
    assert log.offsets()[:2] == [
        log.log.active_segment.base_offset - 2,
        log.log.active_segment.base_offset - 1,
    ]


def test_a_cleaned_segment_keeps_the_time_of_the_last_that_went_into_it(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.fill(3)
    for n, segment in enumerate(log.log.segments):
        log.cleaner._fs.set_mtime_ms(segment.log_path, NOW_MS - 10_000 + n)
    log.clean()
    assert [segment.last_modified_ms for segment in log.log.segments[:2]] == [NOW_MS - 10_000, NOW_MS - 9_999]


def test_a_preallocated_segment_is_cut_to_what_is_in_it(tmp_path: Path) -> None:
    log = Compacted(tmp_path, preallocate="true")
    log.fill(4, distinct=2)
    log.clean()
    for segment in log.log.segments[:-1]:
        assert segment.log_path.stat().st_size == segment.size_bytes


def test_a_batch_that_is_larger_than_the_buffers_finds_room(tmp_path: Path) -> None:
    log = Compacted(tmp_path, io_bytes=100, internal_segment_bytes=50_000)
    log.put(1, b"x" * 10_000)
    log.put(2, b"y" * 10_000)
    log.put(1, b"z" * 20_000)
    log.roll()
    log.clean()
    assert log.keys() == [2, 1]


def test_a_batch_larger_than_the_topic_allows_by_now_is_cleaned_all_the_same(tmp_path: Path) -> None:
    log = Compacted(tmp_path, io_bytes=100, internal_segment_bytes=50_000)
    log.put(1, b"x" * 10_000)
    log.put(1, b"y" * 10_000)
    log.roll()
    log.log.config = dataclasses.replace(log.log.config, max_message_bytes=50)
    log.clean()
    assert log.offsets() == [1]


def damaged(log: Compacted, position: int, value: bytes) -> None:
    """Write into the first segment behind the log's back."""
    with log.log.segments[0].log_path.open("r+b") as file:
        file.seek(position)
        file.write(value)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        pytest.param(65, b"\xff", id="a record"),
        pytest.param(8, (1 << 30).to_bytes(4, "big"), id="a size beyond the segment"),
        pytest.param(8, (5).to_bytes(4, "big"), id="a size below the smallest"),
        pytest.param(8, (0).to_bytes(4, "big"), id="no size"),
        pytest.param(16, b"\x07", id="magic"),
    ],
)
@pytest.mark.parametrize("first", [0, 5], ids=["dirty", "clean"])
def test_a_corrupt_batch_stops_the_cleaning_and_goes_nowhere(
    tmp_path: Path, position: int, value: bytes, first: int
) -> None:
    log = Compacted(tmp_path, internal_segment_bytes=400)
    log.fill(4, distinct=2)
    damaged(log, position, value)
    before = {path.name: path.read_bytes() for path in log.directory.glob("*.log*")}
    with pytest.raises(CorruptRecordError, match=r"00000000000000000000\.log: position 0: "):
        log.clean(first=first)
    assert {path.name: path.read_bytes() for path in log.directory.glob("*.log*")} == before
    assert not list(log.directory.glob("*.cleaned"))


def test_damage_further_on_is_named_with_its_position(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.fill(2, distinct=2)
    position = log.batches()[0].size
    damaged(log, position + 65, b"\xff")
    with pytest.raises(CorruptRecordError, match=f"position {position}: stored CRC"):
        log.clean()


def test_an_aborted_cleaning_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.fill(4, distinct=2)
    before = log.records()
    calls = 0

    def check_abort() -> None:
        nonlocal calls
        calls += 1
        if calls == 7:  # while the first group is written
            raise CleaningAborted("stop")

    with pytest.raises(CleaningAborted):
        log.clean(check_abort=check_abort)
    assert log.records() == before
    assert not list(log.directory.glob("*.cleaned"))
    log.clean(first=0)
    assert len(log.records()) < len(before)


def test_reading_and_writing_are_throttled(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.fill(4, distinct=2)
    log.throttle.bytes_per_second = 100
    start = log.clock.now_ms()
    stats = log.clean(check_abort=lambda: log.clock.advance(400)).stats
    moved = stats.map_bytes_read + stats.bytes_read + stats.bytes_written
    assert log.clock.now_ms() - start >= 0.9 * moved / 100 * 1_000


def test_a_duplicate_of_a_batch_that_was_cleaned_is_known(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.produce(1, [7], transactional=False)
    log.put(7)
    log.roll()
    log.clean()
    log.log.close()
    log.log = log.opened()
    records = [Record(0, NOW_MS, b"7", b"v")]
    again = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
    assert log.log.append_as_leader(again, leader_epoch=0).duplicate


def test_the_last_batch_of_an_active_producer_stays_empty(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.produce(1, [1], transactional=False)
    log.produce(1, [1, 2], transactional=False)
    log.put(1)
    log.put(2)
    log.roll()
    log.clean()
    assert log.offsets() == [3, 4]
    assert log.last_offsets() == [2, 3, 4]
    empty = log.batches()[0]
    assert (empty.record_count, empty.base_sequence, empty.last_sequence) == (0, 1, 2)
    log.log.expire_producers(NOW_MS + 2 * EXPIRATION_MS_DEFAULT, EXPIRATION_MS_DEFAULT)
    log.clean(first=0)
    assert log.last_offsets() == [3, 4]


def test_the_last_batch_below_the_high_watermark_stays_empty(tmp_path: Path) -> None:
    """Else no one knew the log's end from its files."""
    log = Compacted(tmp_path)
    log.follow(0, None, None)
    log.roll()
    log.clean()
    (empty,) = log.batches()
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (0, 1, 0)
    log.follow(2, None)
    log.roll()
    log.clean()
    assert log.last_offsets() == [2]


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_stay_compressed(tmp_path: Path, codec: Codec) -> None:
    log = Compacted(tmp_path)
    records = [Record(n, NOW_MS + n, b"%d" % (n % 3), b"value") for n in range(9)]
    log.append(build_batch(records, codec=codec))
    log.roll()
    log.clean()
    (batch,) = log.batches()
    assert batch.codec is codec
    assert list(batch.records()) == records[-3:]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_message_formats_become_the_current_one(tmp_path: Path, magic: int, codec: Codec) -> None:
    timestamp = NOW_MS if magic else -1
    old = [Record(n, timestamp, b"%d" % (n % 2), b"v") for n in range(4)]
    directory = tmp_path / "latest-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(build_legacy(old, magic=magic, codec=codec))
    log = Compacted(tmp_path)
    log.roll()
    log.clean()
    assert {batch.magic for batch in log.batches()} == {2}
    assert {batch.codec for batch in log.batches()} == {codec}
    assert log.records() == old[2:]


def test_format_0_in_a_wrapper_of_format_1_is_healed(tmp_path: Path) -> None:
    """Old brokers made such sets (KAFKA-4298)."""
    old = [Record(n, -1, b"%d" % n, b"v") for n in range(3)]
    inner = compress(Codec.GZIP, build_legacy(old, magic=0))
    wrapper = bytearray(build_legacy([Record(2, NOW_MS, None, inner)], magic=1))
    wrapper[17] |= Codec.GZIP
    wrapper[12:16] = zlib.crc32(wrapper[16:]).to_bytes(4, "big")
    directory = tmp_path / "latest-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(wrapper)
    log = Compacted(tmp_path)
    log.roll()
    log.clean()
    (batch,) = log.batches()
    assert (batch.magic, batch.base_offset, batch.last_offset) == (2, 0, 2)
    assert log.keys() == [0, 1, 2]


def test_a_message_of_an_old_format_that_is_corrupt_stops_the_cleaning(tmp_path: Path) -> None:
    old = [Record(n, NOW_MS, b"%d" % n, b"v") for n in range(3)]
    directory = tmp_path / "latest-0"
    directory.mkdir()
    data = bytearray(build_legacy(old, magic=1))
    log_file = directory / f"{0:020d}.log"
    log_file.write_bytes(data)
    log = Compacted(tmp_path)
    log.roll()
    data[-1] ^= 1
    log_file.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=r"00000000000000000000\.log: position \d+: "):
        log.clean()


def test_snapshots_of_segments_that_were_merged_go(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    for _ in range(3):
        log.produce(1, [1], transactional=False)
        log.produce(2, [2], transactional=False)
        log.roll()
    assert [snapshot.offset for snapshot in log.log.producers.snapshots] == [2, 4, 6]
    log.clean()
    assert [segment.base_offset for segment in log.log.segments] == [0, 6]
    assert [snapshot.offset for snapshot in log.log.producers.snapshots] == [6]
    log.log.purge_deleted(1 << 62)
    assert [path.name for path in log.directory.glob("*.snapshot*")] == [f"{6:020d}.snapshot"]
