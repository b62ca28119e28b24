"""High watermark, last stable offset and log start offset: how they move, and what a read sees below each."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

import pytest

from stratalog.errors import KafkaStorageError, OffsetOutOfRangeError
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from tests.log.conftest import OpenLog
from tests.log.writers import NOW_MS, Producer, append, batch, follow, replicate


def _offsets(log: PartitionLog, offset: int, isolation: Isolation = Isolation.HIGH_WATERMARK) -> list[int]:
    """Offsets of the records that a read gives."""
    data = log.read(offset, 1 << 30, isolation=isolation, min_one_message=True)
    if data.slice is None:
        assert data.start.offset == offset
        return []
    assert data.start.segment_base_offset in [segment.base_offset for segment in log.segments]
    return [record.offset for found in iter_batches(data.slice.read()) for record in found.records()]


def _assert_reads_end_at(log: PartitionLog, end: int, isolation: Isolation) -> None:
    for offset in range(log.log_start_offset, end):
        seen = _offsets(log, offset, isolation)
        assert offset in seen
        assert seen[-1] < end
    for offset in range(end, log.log_end_offset + 1):
        assert _offsets(log, offset, isolation) == []


def test_a_read_sees_records_once_they_are_replicated_and_still_after_a_roll(open_log: OpenLog) -> None:
    log = open_log()
    append(log, 3)
    assert _offsets(log, 0) == []
    replicate(log)
    assert _offsets(log, 0) == [0, 1, 2]
    log.roll()
    assert _offsets(log, 0) == [0, 1, 2]
    append(log, 3)
    assert _offsets(log, 3) == []


def test_the_high_watermark_stays_between_start_and_end_whatever_happens(open_log: OpenLog) -> None:
    log = open_log()
    assert log.high_watermark == 0
    append(log, 3)
    assert log.high_watermark == 0
    log.update_high_watermark(1)
    assert log.high_watermark == 1
    log.update_high_watermark(5)
    assert log.high_watermark == 3
    follow(log, 3, 3)
    log.update_high_watermark(6)
    assert log.high_watermark == 6
    log.truncate_to(3)
    assert log.high_watermark == 3
    append(log, 3)
    assert (log.high_watermark, log.log_end_offset, log.log_start_offset) == (3, 6, 0)
    log.truncate_fully_and_start_at(4)
    assert (log.high_watermark, log.log_end_offset, log.log_start_offset) == (4, 4, 4)


@pytest.mark.parametrize("high_watermark", [0, 3, 5])
def test_reads_end_at_the_high_watermark(open_log: OpenLog, high_watermark: int) -> None:
    log = open_log()
    append(log, 3)
    append(log, 2)
    log.update_high_watermark(high_watermark)
    _assert_reads_end_at(log, high_watermark, Isolation.HIGH_WATERMARK)
    _assert_reads_end_at(log, 5, Isolation.LOG_END)


def test_committed_reads_end_at_the_last_stable_offset(open_log: OpenLog) -> None:
    log = open_log()
    one, two = (Producer(log, producer_id, transactional=True) for producer_id in (1, 2))
    one.append(5)
    append(log, 3)
    two.append(2)
    one.append(4)
    append(log, 2)
    one.append(10)

    def assert_stable(offset: int) -> None:
        assert log.last_stable_offset == offset
        _assert_reads_end_at(log, offset, Isolation.TXN_COMMITTED)

    assert_stable(0)
    replicate(log)
    assert_stable(0)
    one.commit()
    assert_stable(0)
    replicate(log)
    assert_stable(8)
    two.abort()
    assert_stable(8)
    replicate(log)
    assert_stable(log.log_end_offset)


def test_a_committed_read_sees_nothing_of_an_open_transaction_while_the_watermark_moves(
    open_log: OpenLog,
) -> None:
    log = open_log()
    producer = Producer(log, 15, transactional=True)
    done = threading.Event()

    def move() -> None:
        while not done.is_set():
            replicate(log)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(300):
            end = log.log_end_offset
            producer.append()
            assert log.read(end, 1 << 20, isolation=Isolation.TXN_COMMITTED, min_one_message=False).slice is None
            producer.abort()
    finally:
        done.set()
        mover.join()


def test_the_log_start_offset_holds_up_the_last_stable_offset(open_log: OpenLog) -> None:
    """A transaction that began below the log start is open, but nothing below the log start counts."""
    log = open_log()
    producer = Producer(log, 1, transactional=True)
    producer.append(5)
    append(log, 3)
    log.roll()
    producer.append(5)
    replicate(log)
    assert log.last_stable_offset == 0
    log.increment_log_start_offset(5, "test")
    assert log.last_stable_offset == 5
    log.increment_log_start_offset(8, "test")
    log.delete_old_segments()
    assert [segment.base_offset for segment in log.segments] == [8]
    assert log.last_stable_offset == 8


def test_the_log_cannot_begin_behind_the_high_watermark(open_log: OpenLog) -> None:
    log = open_log()
    append(log, times=100)
    log.update_high_watermark(25)
    with pytest.raises(OffsetOutOfRangeError):
        log.increment_log_start_offset(26, "test")
    log.increment_log_start_offset(20, "test")
    assert log.log_start_offset == log.local_log_start_offset == 20


def test_reads_at_the_bounds(open_log: OpenLog) -> None:
    log = open_log(log_start_offset=1024)
    append(log)
    assert _offsets(log, 1025, Isolation.LOG_END) == []
    for outside in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(outside, 1000, isolation=Isolation.LOG_END)


def test_a_log_whose_files_are_gone_begins_at_the_log_start_that_is_known(open_log: OpenLog) -> None:
    log = open_log(log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)


def test_every_append_returns_its_offsets_also_after_a_roll(open_log: OpenLog) -> None:
    log = open_log()
    first = log.append_as_leader(batch(3), leader_epoch=0)
    second = log.append_as_leader(batch(3), leader_epoch=0)
    log.roll()
    third = log.append_as_leader(batch(3), leader_epoch=0)
    assert [(info.first_offset, info.last_offset) for info in (first, second, third)] == [
        (0, 2),
        (3, 5),
        (6, 8),
    ]


def test_an_offset_inside_a_compressed_batch_gives_the_whole_batch(open_log: OpenLog) -> None:
    from stratalog.records import Codec, Record, build_batch

    log = open_log(segment_bytes=110)
    for first, second in ((b"hello", b"there"), (b"alpha", b"beta")):
        records = [Record(0, 1, None, first), Record(1, 1, None, second)]
        log.append_as_leader(build_batch(records, codec=Codec.GZIP), leader_epoch=0)
    assert [_offsets(log, offset, Isolation.LOG_END)[0] for offset in range(4)] == [0, 0, 2, 2]


def test_every_offset_of_a_log_with_gaps_leads_to_the_record_at_or_behind_it(open_log: OpenLog) -> None:
    """With any limit the first batch is whole; without `min_one_message` a batch that does not fit is left out."""
    log = open_log(segment_bytes=160)
    offsets = [*range(50), *range(50, 200, 7)]
    for offset in offsets:
        follow(log, offset)
    assert len(log.segments) > 10
    for offset in range(50, max(offsets)):
        following = next(o for o in offsets if o >= offset)
        for limit in (1, 100, 100_000):
            data = log.read(offset, limit, isolation=Isolation.LOG_END)
            assert data.slice is not None
            assert next(iter_batches(data.slice.read())).base_offset == following
        assert log.read(offset, 1, isolation=Isolation.LOG_END, min_one_message=False).slice is None


def test_a_gap_at_the_end_of_a_segment_is_read_over(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=300)
    while len(log.segments) == 1:
        append(log)
    last = log.log_end_offset - 1
    log.segments[0].truncate_to(1)
    data = log.read(1, 200, isolation=Isolation.LOG_END)
    assert data.slice is not None
    assert next(iter_batches(data.slice.read())).last_offset == last


def test_records_without_value_and_without_timestamp_are_kept_as_such(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_leader(batch(value=None), leader_epoch=0)
    log.append_as_leader(batch(timestamp_ms=-1), leader_epoch=0)
    data = log.read(0, 1 << 20, isolation=Isolation.LOG_END)
    assert data.slice is not None
    records = [record for found in iter_batches(data.slice.read()) for record in found.records()]
    assert [(record.value, record.timestamp_ms > 0) for record in records] == [(None, True), (b"test", False)]


def test_searches_say_that_a_log_was_closed_or_its_disk_failed(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    append(log, times=3)
    searches: list[Callable[[], object]] = [lambda: log.offset_for_timestamp(NOW_MS), log.max_timestamp]
    failures: list[KafkaStorageError] = []
    log.on_storage_error = failures.append

    def refused(size: int, position: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(log.active_segment.file, "pread", refused)
        for search in searches:
            with pytest.raises(KafkaStorageError, match="read failed"):
                search()
    assert len(failures) == 2

    def closed_concurrently(size: int, position: int) -> bytes:
        log.close()
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    with monkeypatch.context() as patch:
        patch.setattr(log.active_segment.file, "pread", closed_concurrently)
        with pytest.raises(KafkaStorageError, match="is closed"):
            log.offset_for_timestamp(NOW_MS)
    for search in searches:
        with pytest.raises(KafkaStorageError, match="is closed"):
            search()
    assert len(failures) == 2
