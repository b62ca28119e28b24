"""What retention takes from a whole log, step by step: never the end offset, never what is not replicated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import KafkaStorageError
from stratalog.log.format.values import Isolation
from stratalog.log.retention.decision import DeletionReason
from stratalog.records.batch import iter_batches
from stratalog.testing.clock import ManualClock
from tests.log.conftest import OpenLog
from tests.log.writers import NOW_MS, append, batch, replicate

#: Five batches of one record each, without and with a key.
FIVE = len(batch()) * 5
FIVE_KEYED = len(batch(key=b"k")) * 5


@pytest.mark.parametrize(
    ("config", "timestamp_ms", "left"),
    [
        ({"retention_bytes": FIVE_KEYED * 2}, NOW_MS, 2),
        ({"retention_bytes": FIVE_KEYED * 3}, NOW_MS, 3),
        ({"retention_ms": 10_000}, 10, 1),
        ({"retention_ms": 10_000_000}, NOW_MS, 3),
        ({"retention_ms": 10_000, "cleanup_policy": frozenset({"compact", "delete"})}, 10, 1),
        ({"retention_ms": 10_000, "cleanup_policy": frozenset({"compact"})}, 10, 3),
    ],
    ids=["size", "size enough", "time", "young", "compact and delete", "compact"],
)
def test_what_is_too_large_or_too_old_goes_if_the_policy_says_delete(
    open_log: OpenLog, config: dict[str, Any], timestamp_ms: int, left: int
) -> None:
    log = open_log(segment_bytes=FIVE_KEYED, **config)
    for _ in range(15):
        log.append_as_leader(batch(key=b"k", timestamp_ms=timestamp_ms), leader_epoch=0)
    replicate(log)
    log.delete_old_segments()
    assert len(log.segments) == left


@pytest.mark.parametrize("policy", [frozenset({"delete"}), frozenset({"compact"})], ids=["delete", "compact"])
def test_what_lies_below_the_log_start_goes_whatever_the_policy(open_log: OpenLog, policy: frozenset[str]) -> None:
    log = open_log(segment_bytes=FIVE_KEYED, cleanup_policy=policy)
    for _ in range(15):
        log.append_as_leader(batch(key=b"k"), leader_epoch=0)
    replicate(log)
    for start, left in ((1, [0, 5, 10]), (6, [5, 10]), (15, [10])):
        log.increment_log_start_offset(start, "records deleted")
        reasons = {deleted.reason for deleted in log.delete_old_segments()}
        assert reasons <= {DeletionReason.LOG_START_OFFSET}
        assert log.log_start_offset == start
        bases = [segment.base_offset for segment in log.segments]
        assert bases == left


@pytest.mark.parametrize("records", [0, 1, 25])
def test_deletion_does_not_move_the_end(open_log: OpenLog, records: int) -> None:
    log = open_log(segment_bytes=100, retention_ms=0)
    append(log, times=records, timestamp_ms=NOW_MS - 10)
    replicate(log)
    log.delete_old_segments()
    assert (log.log_end_offset, len(log.segments)) == (records, 1)
    assert log.delete_old_segments() == []
    assert log.append_as_leader(batch(), leader_epoch=0).first_offset == records


def test_nothing_at_or_above_the_high_watermark_goes(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=512, retention_ms=999)
    append(log, times=100, timestamp_ms=NOW_MS - 1000)
    assert len(log.segments) > 5
    for high_watermark in range(101):
        log.update_high_watermark(high_watermark)
        log.delete_old_segments()
        assert log.log_start_offset <= high_watermark
        first, *others = log.segments
        assert log.log_start_offset <= first.base_offset <= high_watermark
        assert all(segment.base_offset > high_watermark for segment in others)
    assert (log.log_start_offset, len(log.segments), log.size_bytes) == (100, 1, 0)


def test_epochs_go_with_their_segments_and_the_last_one_stays(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=FIVE, retention_ms=999)
    append(log, times=100, timestamp_ms=NOW_MS - 1000)
    log.leader_epochs.assign(1, 90)
    assert log.delete_old_segments() == []  # nothing is replicated
    replicate(log)
    log.delete_old_segments()
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(1, 100)]
    append(log, times=10)
    log.delete()
    assert log.delete_old_segments() == []
    assert not log.directory.exists()


@pytest.mark.parametrize(
    ("starts", "left"),
    [([0, 5, 10], [(1, 5), (2, 10)]), ([0, 7, 10], [(0, 5), (1, 7), (2, 10)])],
    ids=["at a segment", "within a segment"],
)
def test_an_epoch_begins_no_earlier_than_the_log(
    open_log: OpenLog, starts: list[int], left: list[tuple[int, int]]
) -> None:
    log = open_log(segment_bytes=FIVE, retention_bytes=FIVE * 2)
    append(log, times=15)
    for epoch, start in enumerate(starts):
        log.leader_epochs.assign(epoch, start)
    replicate(log)
    log.delete_old_segments()
    assert [tuple(entry) for entry in log.leader_epochs.entries] == left


def test_a_later_log_start_lets_time_take_what_a_record_of_the_future_held_up(
    open_log: OpenLog, manual_clock: ManualClock
) -> None:
    log = open_log(retention_ms=900)
    for ahead in (100, 0, 100):
        append(log, timestamp_ms=NOW_MS + ahead)
        if log.log_end_offset < 3:
            log.roll()
    manual_clock.advance(901)
    replicate(log)
    assert log.delete_old_segments() == []
    log.increment_log_start_offset(1, "records deleted")
    assert len(log.delete_old_segments()) == 2
    assert log.delete_old_segments() == []


def test_files_of_deleted_segments_are_renamed_and_go_after_the_delay(
    open_log: OpenLog, manual_clock: ManualClock
) -> None:
    log = open_log(segment_bytes=FIVE, retention_ms=999, file_delete_delay_ms=1000)
    append(log, times=100, timestamp_ms=NOW_MS - 1000)
    old = [segment.log_path for segment in log.segments]
    old += [path.with_suffix(".index") for path in old[:-1]]
    replicate(log)
    log.delete_old_segments()
    assert len(log.segments) == 1
    condemned = [Path(f"{path}.deleted") for path in old]
    assert all(path.exists() for path in condemned)
    assert not any(path.exists() for path in old)
    manual_clock.advance(1001)
    log.purge_deleted(manual_clock.now_ms())
    assert not any(path.exists() for path in condemned)


def test_a_closed_log_can_be_deleted(open_log: OpenLog) -> None:
    log = open_log()
    append(log)
    log.close()
    log.delete()
    assert not log.directory.exists()


def test_what_is_deletable_is_a_row_from_the_start_and_the_active_segment_only_with_data(
    open_log: OpenLog,
) -> None:
    log = open_log(retention_ms=0)
    for _ in range(9):
        append(log, timestamp_ms=NOW_MS - 1)
        log.roll()
    replicate(log)
    assert [deleted.base_offset for deleted in log.delete_old_segments()] == list(range(9))
    append(log, timestamp_ms=NOW_MS - 1)
    replicate(log)
    assert [deleted.base_offset for deleted in log.delete_old_segments()] == [9]
    assert [segment.base_offset for segment in log.segments] == [10]


def test_a_reader_gets_what_is_left(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=FIVE, retention_bytes=FIVE)
    append(log, times=15)
    replicate(log)
    log.delete_old_segments()
    data = log.read(log.log_start_offset, 1 << 20, isolation=Isolation.HIGH_WATERMARK)
    assert data.slice is not None
    assert [found.base_offset for found in iter_batches(data.slice.read())] == [10, 11, 12, 13, 14]


def test_a_directory_that_is_a_file_by_now_cannot_be_deleted_silently(open_log: OpenLog) -> None:
    log = open_log()
    for path in log.directory.iterdir():
        path.unlink()
    log.directory.rmdir()
    log.directory.touch()
    with pytest.raises((KafkaStorageError, OSError)):
        log.delete()
