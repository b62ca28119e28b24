"""When a log rolls while it is written: size, age by wall clock and by record time, jitter, and empty segments."""

from __future__ import annotations

import pytest

from stratalog.errors import KafkaStorageError, MessageTooLargeError, RecordListTooLargeError
from stratalog.log.format.values import Isolation
from stratalog.records.batch import iter_batches
from stratalog.testing.clock import ManualClock
from tests.log.conftest import OpenLog
from tests.log.log_model import read_records
from tests.log.writers import NOW_MS, append, batch, follow

HOUR = 3_600_000


def test_age_is_wall_time_without_record_times_and_record_time_with_them(
    open_log: OpenLog, manual_clock: ManualClock
) -> None:
    log = open_log(segment_ms=HOUR, message_timestamp_after_max_ms=1 << 60)
    manual_clock.advance(HOUR + 1)
    append(log, timestamp_ms=-1)
    assert len(log.segments) == 1  # an empty segment is not rolled
    append(log, timestamp_ms=-1)
    assert len(log.segments) == 2
    for segments in (3, 4):
        manual_clock.advance(HOUR + 1)
        append(log, timestamp_ms=-1)
        assert len(log.segments) == segments
    ahead = manual_clock.now_ms() + HOUR + 1
    append(log, timestamp_ms=ahead)
    assert len(log.segments) == 4  # the segment began without a time: the wall clock counts
    manual_clock.advance(HOUR + 1)
    append(log, timestamp_ms=ahead)
    assert len(log.segments) == 5
    manual_clock.advance(HOUR + 1)
    append(log, timestamp_ms=ahead)
    assert len(log.segments) == 5  # the first record has the same time
    append(log, timestamp_ms=manual_clock.now_ms() + HOUR)
    assert len(log.segments) == 6


def test_jitter_makes_a_segment_roll_earlier_and_never_later(open_log: OpenLog, manual_clock: ManualClock) -> None:
    jitter = 1_200_000
    log = open_log(segment_ms=HOUR, segment_jitter_ms=jitter)
    append(log, timestamp_ms=manual_clock.now_ms())
    manual_clock.advance(HOUR - jitter)
    append(log, timestamp_ms=manual_clock.now_ms())
    assert len(log.segments) == 1
    manual_clock.advance(jitter + 1)
    append(log, timestamp_ms=manual_clock.now_ms())
    assert len(log.segments) == 2


def test_a_segment_takes_no_more_bytes_than_its_size(open_log: OpenLog) -> None:
    size = len(batch())
    log = open_log(segment_bytes=10 * (size - 1))
    append(log, times=9)
    assert len(log.segments) == 1
    append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 9]
    for segment in log.segments:
        assert segment.size_bytes <= 10 * (size - 1)


def test_records_larger_than_a_segment_or_than_a_message_may_be_are_refused(open_log: OpenLog) -> None:
    size = len(batch(2))
    with pytest.raises(RecordListTooLargeError):
        open_log(segment_bytes=size - 1).append_as_leader(batch(2), leader_epoch=0)
    log = open_log(max_message_bytes=size - 1)
    append(log)
    with pytest.raises(MessageTooLargeError):
        append(log, 2)
    follow(log, 1, 2)  # what a leader took, a follower takes
    assert log.log_end_offset == 3


def test_an_empty_segment_is_rolled_in_place(open_log: OpenLog) -> None:
    log = open_log()
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0]
    follow(log, 0)
    follow(log, 1)
    assert len(read_records(log, 0)) == 2
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_whose_index_takes_nothing_is_begun_again(open_log: OpenLog) -> None:
    log = open_log()
    append(log, times=2)
    log.roll()
    log.active_segment.offset_index.resize(0)
    log.active_segment._indexes._is_full = None
    append(log)
    assert log.active_segment.offset_index.max_entries > 1
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert len(read_records(log, 0)) == 3


def test_a_log_of_many_segments_reads_as_one(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=100)
    append(log, times=100)
    assert len(log.segments) == 100
    assert [record.offset for record in read_records(log, 0)] == list(range(100))
    assert log.read(100, 1 << 20, isolation=Isolation.LOG_END).slice is None
    log.flush_if_due(NOW_MS)
    assert log.recovery_point >= log.active_segment.base_offset


def test_a_clean_end_makes_the_index_files_of_an_empty_active_segment(open_log: OpenLog) -> None:
    log = open_log()
    append(log)
    log.roll()
    log.close()
    assert len(list(log.directory.glob("*.log"))) == len(list(log.directory.glob("*.index"))) == 2


def test_the_time_index_of_a_follower_has_every_batch(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=10_000, index_interval_bytes=1)
    for i in range(100):
        follow(log, 100 + i, timestamp_ms=NOW_MS + i)
    assert sum(segment.time_index.entries for segment in log.segments) == 99
    assert log.active_segment.time_index.last_entry.timestamp_ms == NOW_MS + 99


def test_a_closed_log_does_not_roll(open_log: OpenLog) -> None:
    log = open_log()
    log.close(flush=False)
    with pytest.raises(KafkaStorageError):
        log.roll()


def test_segments_are_found_by_the_offsets_they_hold(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=10 * len(batch()))
    append(log, times=22)
    assert [segment.base_offset for segment in log.segments] == [0, 10, 20]
    for offset in range(22):
        data = log.read(offset, 1, isolation=Isolation.LOG_END)
        assert data.start.segment_base_offset == offset // 10 * 10
        assert data.slice is not None
        assert next(iter_batches(data.slice.read())).base_offset == offset
