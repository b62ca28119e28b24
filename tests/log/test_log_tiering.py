"""What goes locally from a tiered log, and how its two start offsets move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stratalog.log.partition_log import PartitionLog
from stratalog.testing.clock import ManualClock
from tests.log.conftest import OpenLog
from tests.log.writers import NOW_MS, append, batch, replicate

ONE = len(batch())


def _state(log: PartitionLog) -> tuple[int, int, int]:
    """Segments, log start offset, local log start offset."""
    return len(log.segments), log.log_start_offset, log.local_log_start_offset


def _six(open_log: OpenLog, **config: Any) -> PartitionLog:
    """Six replicated segments of one record each, none copied yet."""
    log = open_log(segment_bytes=ONE, remote_storage_enable=True, **config)
    append(log, times=6)
    replicate(log)
    return log


def test_the_total_limit_of_bytes_holds_locally_for_what_is_copied(open_log: OpenLog) -> None:
    log = _six(open_log, retention_bytes=1)
    log.update_highest_offset_in_remote_storage(1)
    log.delete_old_segments()
    assert _state(log) == (4, 0, 2)


def test_the_total_limit_of_time_holds_locally_for_what_is_copied(open_log: OpenLog, manual_clock: ManualClock) -> None:
    log = _six(open_log, retention_ms=1000)
    log.update_highest_offset_in_remote_storage(1)
    manual_clock.advance(1001)
    log.delete_old_segments()
    assert _state(log) == (4, 0, 2)


def test_without_copying_the_total_limits_hold_and_the_log_start_moves(
    open_log: OpenLog, manual_clock: ManualClock
) -> None:
    config: dict[str, Any] = {"local_retention_bytes": 1, "retention_bytes": ONE * 5}
    log = _six(open_log, **config)
    log.delete_old_segments()
    assert _state(log) == (6, 0, 0)  # nothing is copied
    log.update_highest_offset_in_remote_storage(1)
    log.delete_old_segments()
    assert _state(log) == (4, 0, 2)

    log.config = replace(log.config, remote_log_copy_disable=True)
    log.delete_old_segments()
    assert _state(log) == (4, 0, 2)
    log.increment_log_start_offset(2, "remote retention")
    assert _state(log) == (4, 2, 2)
    append(log, times=3)
    replicate(log)
    log.delete_old_segments()
    assert _state(log) == (5, 4, 4)

    log.config = replace(
        log.config, local_retention_bytes=-2, retention_bytes=-1, local_retention_ms=1, retention_ms=1000
    )
    manual_clock.advance(10)
    log.delete_old_segments()
    assert _state(log) == (5, 4, 4)
    manual_clock.advance(1000)
    log.delete_old_segments()
    assert _state(log) == (1, 9, 9)


def test_an_active_segment_that_is_too_old_is_rolled_then_copied_then_deleted(
    open_log: OpenLog, manual_clock: ManualClock
) -> None:
    log = open_log(retention_ms=1, local_retention_ms=1, remote_storage_enable=True)
    append(log, timestamp_ms=NOW_MS)
    replicate(log)
    manual_clock.advance(2)
    log.delete_old_segments()
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.update_highest_offset_in_remote_storage(1)
    log.delete_old_segments()
    assert _state(log) == (1, 0, 1)
    assert log.log_end_offset == 1


def test_what_lies_below_the_log_start_goes_without_being_copied(open_log: OpenLog) -> None:
    log = open_log(retention_bytes=1, remote_storage_enable=True)
    append(log, times=4)
    log.roll()
    append(log)
    replicate(log)
    log.delete_old_segments()
    assert len(log.segments) == 2
    log.increment_log_start_offset(3, "remote retention")
    log.delete_old_segments()
    assert len(log.segments) == 2
    log.increment_log_start_offset(4, "remote retention")
    log.delete_old_segments()
    assert [segment.base_offset for segment in log.segments] == [4]
    log.increment_log_start_offset(5, "remote retention")
    log.delete_old_segments()
    assert len(log.segments) == 1


def test_the_local_start_follows_the_segments_that_are_left(open_log: OpenLog) -> None:
    log = open_log(local_retention_bytes=1, remote_storage_enable=True)
    for _ in range(50):
        append(log)
        last = log.log_end_offset - 1
        if last and last % 10 == 0:
            log.roll()
    assert len(log.segments) == 5
    replicate(log)
    log.update_highest_offset_in_remote_storage(30)
    log.delete_old_segments()
    assert _state(log) == (2, 0, 31)


def test_a_log_can_begin_earlier_remotely_than_locally(open_log: OpenLog) -> None:
    log = open_log(remote_storage_enable=True)
    append(log, times=100)
    log.update_high_watermark(80)
    log.increment_log_start_offset(40, "records deleted")
    assert (log.log_start_offset, log.local_log_start_offset) == (40, 40)
    log.truncate_fully_and_start_at(60, 40)
    assert (log.log_start_offset, log.local_log_start_offset) == (40, 60)


@pytest.mark.parametrize(
    "limits",
    [{"retention_bytes": 1, "local_retention_bytes": 1}, {"retention_ms": 1000, "local_retention_ms": 1000}],
    ids=["size", "time"],
)
def test_with_an_empty_policy_only_the_local_limits_hold(
    open_log: OpenLog, manual_clock: ManualClock, limits: dict[str, int]
) -> None:
    """Nothing is deleted for good then; what is copied still goes from here."""
    log = _six(open_log, cleanup_policy=frozenset(), **limits)
    manual_clock.advance(1001)
    log.update_highest_offset_in_remote_storage(1)
    log.delete_old_segments()
    assert _state(log) == (4, 0, 2)
    log.config = replace(log.config, remote_storage_enable=False)
    assert log.delete_old_segments() == []
