"""What is known again after a restart: producers, transactions, and a log whose parts do not fit each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.testing.clock import ManualClock
from tests.log.conftest import OpenLog
from tests.log.log_model import read_records
from tests.log.writers import Producer, append, batch, replicate

DAY_MS = 86_400_000


def aborted_in(log: PartitionLog) -> list[tuple[int, int, int]]:
    return [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for segment in log.segments
        for entry in segment.txn_index.all
    ]


def with_transactions(log: PartitionLog) -> list[tuple[int, int, int]]:
    """Four producers over several segments, three transactions aborted; what the indexes then hold."""
    producers = [Producer(log, number, transactional=True) for number in range(4)]
    for round_number in range(6):
        for producer in producers:
            producer.append(2)
        if round_number % 2:
            log.roll()
        if round_number == 2:
            producers[0].abort()
            producers[1].commit()
        if round_number == 4:
            producers[2].abort()
    producers[3].abort()
    append(log, 3)
    return aborted_in(log)


@pytest.mark.parametrize("snapshots", ["all", "none", "latest gone"])
@pytest.mark.parametrize("recovered", ["everything", "last segment"])
def test_transaction_indexes_are_found_again(open_log: OpenLog, tmp_path: Path, recovered: str, snapshots: str) -> None:
    log = open_log(segment_bytes=1_000_000)
    expected = with_transactions(log)
    assert len(expected) == 3
    point = log.active_segment.base_offset if recovered == "last segment" else 0
    lost = [log.segments[-1]] if recovered == "last segment" else log.segments
    paths = [segment.index_paths[2] for segment in lost]
    log.close()
    for path in paths:
        path.unlink(missing_ok=True)
    found = sorted((tmp_path / "foo-0").glob("*.snapshot"))
    for path in {"all": [], "none": found, "latest gone": found[-1:]}[snapshots]:
        path.unlink()
    again = open_log(clean=False, recovery_point=point, segment_bytes=1_000_000)
    assert aborted_in(again) == expected
    replicate(again)
    reported = again.read(0, 1 << 20, isolation=Isolation.TXN_COMMITTED).aborted
    assert reported is not None
    assert reported[0][:2] == (0, 0)


def test_a_marker_of_an_older_coordinator_does_not_stop_a_recovery(
    open_log: OpenLog, manual_clock: ManualClock
) -> None:
    """It may be in a log once its producer was forgotten between the two."""
    log = open_log()
    producer = Producer(log, 1, transactional=True)
    producer.append()
    producer.abort(coordinator_epoch=5)
    manual_clock.advance(2 * DAY_MS)
    assert log.expire_producers(manual_clock.now_ms(), DAY_MS) == 1
    producer.append()
    producer.abort(coordinator_epoch=4)
    log.close()
    again = open_log(clean=False)
    assert again.log_end_offset == 4
    assert len(aborted_in(again)) == 2


def test_damage_below_the_log_start_costs_nothing_above_it(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(9):
        append(log)
        log.roll()
    replicate(log)
    log.increment_log_start_offset(4, "test")
    broken = log.segments[1].log_path
    log.close()
    broken.write_bytes(b"corruptRecord")
    again = open_log(clean=False, log_start_offset=4)
    assert (again.log_start_offset, again.log_end_offset) == (4, 9)
    assert [record.offset for record in read_records(again, 4)] == [4, 5, 6, 7, 8]
    append(again)
    again.roll()
    assert again.producers.snapshots.get(10) is not None
    assert broken.read_bytes() == b"corruptRecord"


def test_an_empty_active_segment_is_recovered_with_its_index_files(open_log: OpenLog) -> None:
    log = open_log()
    append(log, times=3)
    log.roll()
    active = log.active_segment
    log.close()
    for path in (active.log_path, *active.index_paths):
        path.unlink(missing_ok=True)
    again = open_log(clean=False)
    assert again.log_end_offset == 3
    append(again)
    assert again.log_end_offset == 4
    again.close()


def test_a_log_that_was_opened_again_can_be_truncated(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=300)
    append(log, times=20)
    log.close()
    again = open_log(clean=False, segment_bytes=300)
    again.truncate_to(3)
    assert len(again.segments) < 4
    assert (again.log_end_offset, len(read_records(again, 0))) == (3, 3)


def test_producers_below_a_later_log_start_are_known_after_a_restart(open_log: OpenLog) -> None:
    for clean in (True, False):
        log = open_log(clean=clean)
        first, second = Producer(log, 1), Producer(log, 2)
        if not log.log_end_offset:
            first.append()
            log.roll()
            second.append()
            replicate(log)
            log.increment_log_start_offset(1, "test")
            log.delete_old_segments()
        start = log.log_start_offset
        log.close()
        again = open_log(clean=clean, log_start_offset=start)
        assert set(again.producers.producers) >= {2}
        again.close()


def test_a_directory_that_was_created_with_garbage_beside_it_is_opened(open_log: OpenLog, tmp_path: Path) -> None:
    """Names that are of no segment are no one's business."""
    log = open_log()
    append(log)
    log.close()
    for name in ("notes.txt", "1.log", "00000000000000000000.log.bak", "remote", "x.index"):
        (tmp_path / "foo-0" / name).write_bytes(b"?")
    assert len(read_records(open_log(), 0)) == 1
    assert (tmp_path / "foo-0" / "1.log").read_bytes() == b"?"


def test_a_configuration_with_smaller_indexes_takes_effect_at_the_next_opening(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "foo-0", LogConfig())
    log.append_as_leader(batch(), leader_epoch=0)
    log.close()
    again = PartitionLog.open(tmp_path / "foo-0", LogConfig(segment_index_bytes=1_200), clean_shutdown=True)
    assert again.active_segment.offset_index.length == 1_200
    again.close()
