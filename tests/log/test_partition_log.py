"""What a partition does beyond holding records: reads, watermarks, transactions, deletion, tiering, failing disks."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import (
    KafkaStorageError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
)
from stratalog.log.format.values import Isolation, LogOffset
from stratalog.log.partition_log import PartitionLog
from stratalog.log.retention.decision import DeletionReason
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import LossyFileSystem
from tests.log.log_model import batch_of, read_records

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, segment_index_bytes=240, retention_ms=-1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> PartitionLog:
    return PartitionLog.open(tmp_path / "orders-3", SMALL, clock=clock)


def append(log: PartitionLog, count: int = 1, *, size: int = 20, epoch: int = 0, **fields: int) -> None:
    """One batch, and the high watermark behind it."""
    log.append_as_leader(batch_of([b"v" * size] * count, [1] * count, **fields), leader_epoch=epoch)
    log.update_high_watermark(log.log_end_offset)


def fill(log: PartitionLog, batches: int) -> None:
    for _ in range(batches):
        append(log, 2)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_new_log_is_empty(log: PartitionLog) -> None:
    assert (log.topic, log.partition) == ("orders", 3)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert log.read(0, 100).slice is None
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None


def test_a_read_begins_with_the_batch_that_holds_the_offset(log: PartitionLog) -> None:
    append(log, 5)
    append(log, 5)
    data = log.read(7, 10_000)
    assert data.slice is not None
    assert [batch.base_offset for batch in iter_batches(data.slice.read())] == [5]
    assert data.start == LogOffset(5, 0, data.slice.position)


@pytest.mark.parametrize("max_bytes", [0, 1, 100, 130, 100_000])
def test_a_read_gives_one_whole_batch_at_least_and_no_more_than_asked(log: PartitionLog, max_bytes: int) -> None:
    append(log)
    append(log)
    size = log.size_bytes // 2
    data = log.read(0, max_bytes)
    assert data.slice is not None
    assert data.slice.size == min(2 * size, max(size, max_bytes))


def test_without_at_least_one_message_a_batch_that_does_not_fit_is_left_out(log: PartitionLog) -> None:
    append(log)
    assert log.read(0, log.size_bytes - 1, min_one_message=False).slice is None
    assert log.read(0, log.size_bytes, min_one_message=False).slice is not None


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_offsets_outside_are_refused(log: PartitionLog, offset: int) -> None:
    append(log, 2)
    with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} is not in the local log"):
        log.read(offset, 100)


def test_reads_end_at_the_high_watermark_by_default(log: PartitionLog) -> None:
    append(log, 2)
    log.append_as_leader(batch_of([b"x"] * 2, [1] * 2), leader_epoch=0)
    assert log.high_watermark == 2
    data = log.read(0, 10_000)
    assert data.slice is not None
    assert [batch.last_offset for batch in iter_batches(data.slice.read())] == [1]
    assert log.read(2, 10_000).slice is None
    assert log.read(3, 10_000).slice is None
    assert len(read_records(log, 0)) == 4
    log.update_high_watermark(2)
    assert log.high_watermark == 2
    log.update_high_watermark(1_000)
    assert log.high_watermark == 4


def test_a_watermark_amid_the_log_bounds_reads_in_every_segment(log: PartitionLog) -> None:
    fill(log, 20)
    for high_watermark in range(0, 41, 2):
        log.update_high_watermark(high_watermark)
        seen = 0
        for offset in range(0, high_watermark, 2):
            data = log.read(offset, 100_000)
            assert data.slice is not None
            last = [batch.last_offset for batch in iter_batches(data.slice.read())][-1]
            assert last < high_watermark
            seen = last + 1
        assert seen == high_watermark


def test_offset_gaps_are_read_over(log: PartitionLog) -> None:
    append(log, 2)
    log.append_as_follower(_follower_batch(50))
    log.roll()
    log.append_as_follower(_follower_batch(90))
    log.update_high_watermark(91)
    assert log.read(10, 100).start.offset == 50
    assert log.read(60, 100).start.offset == 90
    assert log.read(2, 100).start.offset == 50


def _follower_batch(offset: int) -> bytes:
    return build_batch([Record(offset, 1, None, b"x")], base_offset=offset, partition_leader_epoch=0)


def test_readers_never_see_a_torn_batch(tmp_path: Path) -> None:
    """While one thread appends, rolls and deletes, others read whole batches with consecutive offsets."""
    log = PartitionLog.open(
        tmp_path / "busy-0",
        replace(SMALL, segment_bytes=20_000, retention_bytes=100_000, file_delete_delay_ms=0),
    )
    failures: list[BaseException] = []
    done = threading.Event()

    def read_on() -> None:
        offset = 0
        try:
            while not done.is_set() or offset < log.high_watermark:
                try:
                    data = log.read(offset, 8_000)
                except OffsetOutOfRangeError:
                    offset = log.log_start_offset
                    continue
                if data.slice is None:
                    continue
                for batch in iter_batches(data.slice.read()):
                    batch.ensure_valid()
                    assert batch.base_offset <= offset <= batch.last_offset
                    offset = batch.next_offset
                    assert offset <= log.log_end_offset
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read_on) for _ in range(3)]
    for reader in readers:
        reader.start()
    for i in range(1_000):
        append(log, 1 + i % 3, size=i % 200)
        if i % 200 == 0:
            log.delete_old_segments()
            log.purge_deleted(1 << 60)
    done.set()
    for reader in readers:
        reader.join()
    assert not failures


def test_a_slice_outlives_its_segment(log: PartitionLog, clock: ManualClock) -> None:
    fill(log, 20)
    data = log.read(0, 300)
    assert data.slice is not None
    before = data.slice.read()
    log.config = replace(SMALL, retention_bytes=0, file_delete_delay_ms=0)
    log.delete_old_segments()
    log.purge_deleted(clock.now_ms())
    assert data.slice.read() == before
    log.close()
    assert data.slice.read() == before


# --- appending --------------------------------------------------------------------------------------------------------


def test_more_than_a_segment_holds_is_refused(log: PartitionLog) -> None:
    with pytest.raises(RecordListTooLargeError, match=r"segment\.bytes is 600"):
        append(log, size=600)
    assert log.log_end_offset == 0


def test_a_producers_retry_is_answered_with_the_first_offsets(log: PartitionLog) -> None:
    batch = batch_of([b"x"] * 2, [1] * 2, producer_id=7, producer_epoch=0, base_sequence=0)
    first = log.append_as_leader(batch, leader_epoch=0)
    append(log)
    size = log.size_bytes
    again = log.append_as_leader(batch, leader_epoch=0)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert (log.size_bytes, log.log_end_offset) == (size, 3)


def test_a_batch_out_of_sequence_leaves_no_trace(log: PartitionLog) -> None:
    append(log, producer_id=7, producer_epoch=0, base_sequence=0)
    size = log.size_bytes
    with pytest.raises(OutOfOrderSequenceError):
        append(log, producer_id=7, producer_epoch=0, base_sequence=5)
    assert (log.size_bytes, log.log_end_offset) == (size, 1)
    append(log, producer_id=7, producer_epoch=0, base_sequence=1)


def test_a_new_leader_epoch_begins_where_its_first_record_is(log: PartitionLog) -> None:
    for epoch in (0, 0, 3, 3, 4):
        append(log, epoch=epoch)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (3, 2), (4, 4)]


def test_config_takes_effect_at_once(log: PartitionLog) -> None:
    append(log)
    log.config = replace(SMALL, segment_bytes=log.size_bytes)
    append(log)
    assert len(log.segments) == 2


def test_flush_messages_syncs_while_appending(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "o-0", replace(SMALL, flush_messages=3))
    points = []
    for _ in range(5):
        append(log)
        points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3]


def test_flush_ms_and_sealed_segments_are_flushed_when_due(log: PartitionLog, clock: ManualClock) -> None:
    append(log)
    assert not log.flush_if_due(clock.now_ms())
    log.roll()
    append(log)
    assert log.flush_if_due(clock.now_ms())
    assert log.recovery_point == 1
    log.config = replace(SMALL, flush_ms=50)
    clock.advance(50)
    assert log.flush_if_due(clock.now_ms())
    assert log.recovery_point == 2


# --- transactions -----------------------------------------------------------------------------------------------------


def _transactional(log: PartitionLog, producer_id: int, sequence: int) -> None:
    fields: dict[str, Any] = {"is_transactional": True}
    append(log, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **fields)


def _end(log: PartitionLog, producer_id: int, kind: ControlType) -> None:
    marker = end_transaction_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    log.append_as_leader(marker, leader_epoch=0, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)


def test_the_last_stable_offset_waits_for_open_transactions(log: PartitionLog) -> None:
    append(log)
    _transactional(log, 1, 0)
    _transactional(log, 2, 0)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    _end(log, 1, ControlType.ABORT)
    assert log.last_stable_offset == 2
    _end(log, 2, ControlType.COMMIT)
    assert log.last_stable_offset == log.high_watermark == 5


def test_a_committed_read_ends_at_the_last_stable_offset_and_names_what_was_aborted(
    log: PartitionLog,
) -> None:
    append(log)
    _transactional(log, 1, 0)
    for _ in range(12):
        append(log)
    assert len(log.segments) > 1
    open_ended = log.read(0, 100_000, isolation=Isolation.TXN_COMMITTED)
    assert open_ended.slice is not None
    assert [b.last_offset for b in iter_batches(open_ended.slice.read())] == [0]
    assert open_ended.aborted == []
    _end(log, 1, ControlType.ABORT)
    ended = log.read(0, 100_000, isolation=Isolation.TXN_COMMITTED)
    assert ended.aborted is not None
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in ended.aborted] == [(1, 1, 14)]
    assert log.read(0, 100_000).aborted is None


# --- deletion ---------------------------------------------------------------------------------------------------------


def test_deleted_files_are_renamed_and_go_after_the_delay(log: PartitionLog, clock: ManualClock) -> None:
    fill(log, 12)
    log.config = replace(SMALL, retention_bytes=300, file_delete_delay_ms=1_000)
    deleted = log.delete_old_segments()
    assert deleted
    assert {d.reason for d in deleted} == {DeletionReason.SIZE}
    assert log.log_start_offset == log.local_log_start_offset == log.segments[0].base_offset > 0
    base = f"{deleted[0].base_offset:020d}"
    assert (log.directory / f"{base}.log.deleted").exists()
    clock.advance(999)
    assert log.purge_deleted(clock.now_ms()) == 0
    clock.advance(1)
    assert log.purge_deleted(clock.now_ms()) > 0
    assert not list(log.directory.glob("*.deleted"))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, 10)


def test_old_data_goes_though_no_one_writes(log: PartitionLog, clock: ManualClock) -> None:
    log.append_as_leader(batch_of([b"x"], [clock.now_ms()]), leader_epoch=0)
    log.update_high_watermark(1)
    log.config = replace(SMALL, retention_ms=100)
    clock.advance(100)
    assert log.delete_old_segments() == []
    clock.advance(1)
    assert [d.reason for d in log.delete_old_segments()] == [DeletionReason.TIME]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1, 1, 0)


def test_records_without_timestamps_are_as_old_as_their_file(log: PartitionLog, clock: ManualClock) -> None:
    log.append_as_leader(batch_of([b"x"], [-1]), leader_epoch=0)
    log.update_high_watermark(1)
    log.config = replace(SMALL, retention_ms=100)
    segment = log.active_segment
    clock.jump(segment.last_modified_ms + 100 - clock.now_ms())
    assert log.delete_old_segments() == []
    clock.advance(1)
    assert len(log.delete_old_segments()) == 1


def test_a_compacted_log_loses_only_what_lies_below_its_start(log: PartitionLog) -> None:
    fill(log, 12)
    log.config = replace(SMALL, cleanup_policy=frozenset({"compact"}), retention_bytes=0, retention_ms=0)
    assert log.delete_old_segments() == []
    log.increment_log_start_offset(log.segments[1].base_offset, "test")
    assert [d.reason for d in log.delete_old_segments()] == [DeletionReason.LOG_START_OFFSET]


def test_the_log_cannot_begin_above_the_high_watermark(log: PartitionLog) -> None:
    append(log, 2)
    log.append_as_leader(batch_of([b"x"], [1]), leader_epoch=0)
    with pytest.raises(OffsetOutOfRangeError, match="above the high watermark 2"):
        log.increment_log_start_offset(3, "test")


# --- tiering ----------------------------------------------------------------------------------------------------------

TIERED = replace(SMALL, remote_storage_enable=True, local_retention_bytes=0, local_retention_ms=-1)


def test_a_tiered_log_deletes_only_what_is_finished_remotely(log: PartitionLog) -> None:
    fill(log, 12)
    log.config = TIERED
    log.delete_old_segments()
    first, second = log.segments[:2]
    assert first.base_offset == 0
    log.update_highest_offset_in_remote_storage(second.base_offset - 2)
    assert log.delete_old_segments() == []
    log.update_highest_offset_in_remote_storage(second.base_offset - 1)
    assert [d.base_offset for d in log.delete_old_segments()] == [0]
    assert (log.log_start_offset, log.local_log_start_offset) == (0, second.base_offset)
    log.update_highest_offset_in_remote_storage(3)
    assert log.highest_offset_in_remote_storage == second.base_offset - 1


def test_a_tiered_log_remembers_both_starts_over_a_restart(log: PartitionLog, clock: ManualClock) -> None:
    fill(log, 12)
    log.config = TIERED
    log.update_highest_offset_in_remote_storage(log.segments[2].base_offset - 1)
    log.delete_old_segments()
    local_start = log.local_log_start_offset
    log.close()
    again = PartitionLog.open(log.directory, TIERED, clock=clock, clean_shutdown=True, log_start_offset=0)
    assert (again.log_start_offset, again.local_log_start_offset) == (0, local_start)


def test_an_active_segment_that_is_too_old_is_rolled_to_be_copied(log: PartitionLog, clock: ManualClock) -> None:
    log.append_as_leader(batch_of([b"x"], [clock.now_ms()]), leader_epoch=0)
    log.update_high_watermark(1)
    log.config = replace(TIERED, local_retention_ms=10, local_retention_bytes=-1, retention_ms=-1)
    clock.advance(11)
    assert log.delete_old_segments() == []
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_without_copying_the_total_retention_holds_locally(log: PartitionLog) -> None:
    fill(log, 12)
    log.config = replace(TIERED, remote_log_copy_disable=True, retention_bytes=300)
    assert log.delete_old_segments()
    assert log.log_start_offset == log.local_log_start_offset > 0


# --- failing disks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 40, 80])
@pytest.mark.parametrize("size", [20, 20_000], ids=["small", "large"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, room: int, size: int) -> None:
    fs = LossyFileSystem(tmp_path)
    log = PartitionLog.open(tmp_path / "orders-0", LogConfig(), fs=fs)
    append(log, producer_id=1, producer_epoch=0, base_sequence=0)
    before = log.active_segment.log_path.read_bytes()
    fs.bytes_left = room
    with pytest.raises(KafkaStorageError, match="append failed: No space left on device"):
        append(log, size=size, producer_id=1, producer_epoch=0, base_sequence=1)
    assert log.active_segment.log_path.read_bytes() == before
    assert log.log_end_offset == 1
    fs.bytes_left = None
    append(log, size=size, producer_id=1, producer_epoch=0, base_sequence=1)
    assert [record.offset for record in read_records(log, 0)] == [0, 1]


def test_an_index_that_cannot_be_written_takes_the_append_back(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 2)
    entries, size = log.active_segment.offset_index.entries, log.size_bytes
    with monkeypatch.context() as patch:
        patch.setattr(log.active_segment.time_index, "maybe_append", _no_space)
        with pytest.raises(KafkaStorageError, match="No space"):
            append(log, 2)
    assert (log.active_segment.offset_index.entries, log.size_bytes) == (entries, size)
    assert log.active_segment.log_path.stat().st_size == size
    append(log, 2)
    assert log.active_segment.offset_index.entries == entries + 1
    assert [record.offset for record in read_records(log, 0)] == list(range(6))


def _no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_after_a_failed_sync_nothing_more_is_promised(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log)
    with monkeypatch.context() as patch:
        patch.setattr(log.active_segment.file, "sync", _no_space)
        with pytest.raises(KafkaStorageError, match="flush failed"):
            log.flush()
    assert len(read_records(log, 0)) == 1
    calls: list[Callable[[], object]] = [log.flush, lambda: append(log), log.close]
    for call in calls:
        with pytest.raises(KafkaStorageError, match="an earlier sync failed"):
            call()
    assert log.recovery_point == 0


def test_a_roll_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    fs = LossyFileSystem(tmp_path)
    log = PartitionLog.open(tmp_path / "orders-0", SMALL, fs=fs)
    append(log)
    fs.bytes_left = 0
    for _ in range(3):
        with pytest.raises(KafkaStorageError):
            append(log)
    with pytest.raises(KafkaStorageError):
        log.roll()
    fs.bytes_left = None
    end = log.log_end_offset
    fill(log, 10)
    assert [record.offset for record in read_records(log, 0)] == list(range(end + 20))


# --- end --------------------------------------------------------------------------------------------------------------


def test_a_closed_log_says_so(log: PartitionLog) -> None:
    append(log)
    log.close()
    log.close()
    for call in (lambda: append(log), lambda: log.read(0, 10), log.roll):
        with pytest.raises(KafkaStorageError, match="orders-3: the log is closed"):
            call()
    assert log.purge_deleted(1 << 60) == 0
    assert log.delete_old_segments() == []


def test_a_deleted_log_is_gone(log: PartitionLog) -> None:
    append(log)
    log.delete()
    assert not log.directory.exists()


def test_no_file_stays_open_behind_a_closed_log(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        """Of this log: other threads of the process open and close files of their own."""
        names = []
        for number in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):
                names.append(os.readlink(f"/proc/self/fd/{number}"))
        return [name for name in names if name.startswith(str(tmp_path))]

    log = PartitionLog.open(tmp_path / "orders-0", SMALL)
    fill(log, 30)
    read_records(log, 0)
    assert open_files()
    log.config = replace(SMALL, retention_bytes=0)
    log.delete_old_segments()
    log.close()
    assert open_files() == []
