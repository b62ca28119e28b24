"""What truncation takes back: records, epochs, producers, snapshots, transactions; and that appends go on behind it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.segment import LogSegment
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from tests.log.conftest import OpenLog
from tests.log.writers import NOW_MS, Producer, append, batch, follow

TEN = 10 * len(batch())


def _snapshots(log: PartitionLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.snapshot"))


def test_a_log_goes_back_to_any_offset_and_on_from_there(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=TEN)
    append(log, times=10)
    size = log.size_bytes
    for at_or_behind_the_end in (10, 11):
        assert not log.truncate_to(at_or_behind_the_end)
        assert (log.log_end_offset, log.size_bytes) == (10, size)
    log.truncate_to(5)
    assert (log.log_end_offset, log.size_bytes) == (5, size // 2)
    log.truncate_to(0)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    append(log, times=10)
    assert (log.log_end_offset, log.size_bytes) == (10, size)
    log.truncate_fully_and_start_at(1)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1, 1, 0)
    append(log, times=10)
    assert (log.log_end_offset, log.size_bytes) == (11, size)
    log.truncate_to(0)  # before the first offset of the log
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_the_indexes_get_their_full_size_back(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=TEN, index_interval_bytes=len(batch()) - 1, segment_index_bytes=1200)
    for i in range(20):
        append(log, timestamp_ms=NOW_MS + i)
    first = log.segments[0]
    assert len(log.segments) == 2
    assert (first.offset_index.max_entries, first.time_index.max_entries) == (9, 9)
    log.truncate_to(0)
    assert (first.offset_index.max_entries, first.time_index.max_entries) == (1200 // 8, 1200 // 12)
    for i in range(10):
        append(log, timestamp_ms=NOW_MS + i)
    assert len(log.segments) == 1


@pytest.mark.parametrize("fully", [False, True])
def test_an_open_transaction_above_is_forgotten(open_log: OpenLog, fully: bool) -> None:
    log = open_log()
    append(log, 3)
    Producer(log, 17, 10, transactional=True).append(2)
    log.close()
    log = open_log()
    producers = log.producers
    assert producers.first_unstable_offset == 3
    if fully:
        log.truncate_fully_and_start_at(0)
    else:
        log.truncate_to(0)
    assert log.producers.first_unstable_offset is None
    assert not log.producers.producers


def test_a_log_that_begins_again_may_have_an_earlier_log_start(open_log: OpenLog) -> None:
    log = open_log()
    append(log, 3)
    Producer(log, 17, 10, transactional=True).append(2)
    log.close()
    log = open_log()
    log.truncate_fully_and_start_at(2, 1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 2)
    assert log.producers.first_unstable_offset is None
    assert not log.producers.producers


@pytest.mark.parametrize(("offset", "recovery_point"), [(60, 20), (20, 20), (12, 12)])
def test_a_log_that_begins_again_has_flushed_what_it_had_flushed(
    open_log: OpenLog, offset: int, recovery_point: int
) -> None:
    log = open_log(segment_bytes=TEN)
    append(log, times=20)
    log.flush()
    append(log, times=20)
    written: list[int] = []
    log.write_bounds_by(lambda: written.append(log.recovery_point))
    log.truncate_fully_and_start_at(offset)
    assert log.recovery_point == recovery_point
    assert written == [0, recovery_point]  # a crash half-way would have recovered all that was left


def test_epochs_at_or_behind_the_end_go_though_no_record_does(open_log: OpenLog) -> None:
    log = open_log()
    follow(log, 27, 2, epoch=19)
    for epoch, offset in ((20, 29), (24, 30)):
        log.leader_epochs.assign(epoch, 29)
        log.truncate_to(offset)
        assert [tuple(entry) for entry in log.leader_epochs.entries] == [(19, 27)]
        assert log.log_end_offset == 29


def test_epochs_go_with_their_records(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=TEN)
    for offset in range(20):
        follow(log, offset, epoch=0 if offset < 10 else 1 if offset < 16 else 2)
    assert len(log.segments) == 2
    for offset, left in ((20, 3), (11, 2), (10, 1), (0, 0)):
        log.truncate_to(offset)
        assert len(log.leader_epochs.entries) == left


def test_snapshots_behind_go_and_the_state_ends_where_the_log_does(open_log: OpenLog) -> None:
    log = open_log()
    append(log, times=2)
    log.producers.take_snapshot()
    append(log)
    log.producers.take_snapshot()
    for offset, snapshots in ((2, [1, 2]), (1, [1]), (0, [])):
        log.truncate_to(offset)
        assert _snapshots(log)[-1:] == snapshots[-1:]
        assert log.producers.map_end_offset == offset


def test_producers_are_found_again_without_any_snapshot(open_log: OpenLog) -> None:
    log = open_log()
    producer = Producer(log, 1)
    producer.append()
    producer.append()
    for path in log.directory.glob("*.snapshot"):
        Path(path).unlink()
    log.truncate_to(1)
    assert {i: entry.last_sequence for i, entry in log.producers.producers.items()} == {1: 0}


def test_a_log_that_begins_again_has_no_snapshots(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=len(batch()))
    append(log)
    log.producers.take_snapshot()
    append(log, times=2)
    log.producers.take_snapshot()
    assert (len(log.segments), log.producers.map_end_offset, _snapshots(log)[-1]) == (3, 3, 3)
    log.truncate_fully_and_start_at(29)
    assert (len(log.segments), log.producers.map_end_offset, log.producers.snapshots.latest_offset) == (
        1,
        29,
        None,
    )


def test_a_truncation_to_a_segments_start_keeps_the_segment_and_its_snapshot(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1024)
    for sequence in range(2):
        records = [Record(0, NOW_MS, None, bytes(512))]
        log.append_as_leader(
            build_batch(records, producer_id=1, producer_epoch=0, base_sequence=sequence), leader_epoch=0
        )
    for _ in range(2):
        assert [segment.base_offset for segment in log.segments] == [0, 1]
        assert log.producers.snapshots.latest_offset == 1
        log.truncate_to(1)
    assert log.active_segment.size_bytes == 0
    entry = log.producers.producers[1]
    assert entry.last_offset == 0


@pytest.mark.parametrize("kept", [[0, 2], [1]], ids=["last gone", "middle kept"])
def test_the_sequence_of_a_compacted_batch_counts_also_after_truncation(open_log: OpenLog, kept: list[int]) -> None:
    """Compaction leaves gaps: the last sequence is that of the last offset the batch had, kept or not."""
    log = open_log()
    log.append_as_follower(
        build_batch(
            [Record(23 + i, NOW_MS, None, b"x") for i in kept],
            base_offset=23,
            last_offset_delta=3,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            partition_leader_epoch=0,
        )
    )
    assert log.producers.producers[1].last_sequence == 3
    follow(log, 27, 2)
    log.truncate_to(27)
    assert log.producers.producers[1].last_sequence == 3


def test_an_empty_compacted_batch_keeps_the_last_sequence(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(
        build_batch(
            [],
            base_offset=23,
            last_offset_delta=1,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            partition_leader_epoch=0,
        )
    )
    follow(log, 25, 2)
    log.truncate_to(25)
    assert log.producers.producers[1].last_sequence == 1


def test_a_place_that_damage_hides_is_not_truncated_to_and_nothing_was_done(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=TEN)
    append(log, times=25)
    path, size = log.segments[0].log_path, len(batch())
    data = bytearray(path.read_bytes())
    data[3 * size + 16] = 9  # the magic of the batch with offset 3
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="position"):
        log.truncate_to(5)
    assert (log.log_end_offset, len(log.segments)) == (25, 3)
    assert not list(log.directory.glob("*.deleted"))
    append(log, times=7)
    log.close()
    assert open_log(clean=True, recovery_point=32, segment_bytes=TEN).log_end_offset == 32


def test_the_last_segment_goes_first(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends in the middle of a truncation leaves a log without a gap."""
    log = open_log(segment_bytes=TEN)
    append(log, times=45)
    gone: list[int] = []
    rename = LogSegment.change_suffix

    def renamed(segment: LogSegment, old: str, new: str) -> None:
        rename(segment, old, new)
        gone.append(segment.base_offset)

    monkeypatch.setattr(LogSegment, "change_suffix", renamed)
    log.truncate_to(5)
    assert gone == [40, 30, 20, 10]


def test_whenever_the_power_goes_in_a_truncation_no_gap_is_left(tmp_path: Path) -> None:
    for kill_at in itertools.count():
        directory = tmp_path / str(kill_at) / "foo-0"
        directory.mkdir(parents=True)
        fs = LossyFileSystem(directory)
        config = LogConfig(segment_bytes=3 * len(batch()))
        log = PartitionLog.open(directory, config, fs=fs)
        append(log, times=13)
        log.flush()
        fs.kill_at = kill_at
        try:
            log.truncate_to(4)
        except Killed:
            pass
        else:
            break
        fs.crash()
        log = PartitionLog.open(directory, config, clean_shutdown=False, recovery_point=0)
        ends = [segment.read_next_offset() for segment in log.segments]
        bases = [segment.base_offset for segment in log.segments]
        assert bases == [0, *ends[:-1]], f"killed before change {kill_at}"
        log.close()
    assert kill_at > 10
