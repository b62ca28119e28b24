"""Producers over the life of a log: snapshots at rolls and stops, expiry, duplicates, and what deletion leaves."""

from __future__ import annotations

import pytest

from stratalog.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from stratalog.log.format.file_names import snapshot_file
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from tests.log.conftest import OpenLog
from tests.log.writers import NOW_MS, Producer, append, batch, replicate


def _snapshots(log: PartitionLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.snapshot"))


def test_a_retry_of_a_recent_batch_is_answered_and_of_an_old_one_refused(open_log: OpenLog) -> None:
    log = open_log()
    producer = Producer(log, 1)
    for _ in range(6):
        producer.append()
    first = log.append_as_leader(producer.batch(3), leader_epoch=0)
    again = log.append_as_leader(producer.batch(3), leader_epoch=0)
    assert (again.first_offset, again.last_offset, again.duplicate) == (
        first.first_offset,
        first.last_offset,
        True,
    )
    assert log.log_end_offset == 9

    producer.sequence = 9 - 2
    with pytest.raises(OutOfOrderSequenceError):  # the end of a known batch is no known batch
        producer.append(2)
    producer.sequence = 2
    assert producer.append().first_offset == 2  # the oldest of the five that are known
    producer.sequence = 1
    with pytest.raises(OutOfOrderSequenceError):
        producer.append()
    producer.sequence = 9
    one, same = log.append_as_leader(producer.batch(), leader_epoch=0), producer.append()
    assert (one.first_offset, one.last_offset) == (same.first_offset, same.last_offset) == (9, 9)


def test_a_sequence_that_skips_and_an_old_epoch_are_refused(open_log: OpenLog) -> None:
    log = open_log()
    producer = Producer(log, 1, epoch=1)
    producer.append()
    producer.sequence = 2
    with pytest.raises(OutOfOrderSequenceError):
        producer.append()
    with pytest.raises(InvalidProducerEpochError):
        Producer(log, 1, epoch=0).append()
    assert log.log_end_offset == 1


def test_a_follower_takes_duplicates_and_batches_of_many_producers_as_they_come(open_log: OpenLog) -> None:
    log = open_log()
    one, two = Producer(log, 1), Producer(log, 2)
    batches = b"".join(
        [
            one.batch(base_offset=0),
            two.batch(base_offset=1),
            Producer(log, 3).batch(base_offset=2),
            Producer(log, 1, sequence=1).batch(base_offset=3),
            Producer(log, 1, sequence=1).batch(base_offset=4),
        ]
    )
    log.append_as_follower(batches)
    assert log.log_end_offset == 5
    data = log.read(0, 1 << 20, isolation=Isolation.LOG_END)
    assert data.slice is not None
    found = [(b.producer_id, b.base_offset, b.base_sequence) for b in iter_batches(data.slice.read())]
    assert found == [(1, 0, 0), (2, 1, 0), (3, 2, 0), (1, 3, 1), (1, 4, 1)]


def test_every_roll_takes_a_snapshot_and_a_flush_takes_none_away(open_log: OpenLog) -> None:
    log = open_log()
    for offset in (1, 2, 3):
        append(log)
        log.roll()
        assert _snapshots(log) == list(range(1, offset + 1))
    append(log)
    log.flush(4)
    assert _snapshots(log) == [1, 2, 3]


def test_records_without_producer_move_the_snapshot_too(open_log: OpenLog) -> None:
    log = open_log()
    append(log)
    log.producers.take_snapshot()
    assert log.producers.snapshots.latest_offset == 1


def test_missing_snapshots_are_taken_again_where_a_later_start_needs_them(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=640)
    append(log, times=101)
    bases = [segment.base_offset for segment in log.segments]
    end = log.log_end_offset
    for clean, recovery_point, expected in (
        (True, end, [*bases[-2:], end]),
        (False, end, [*bases[-2:], end]),
        (False, 0, [*bases[1:], end]),
    ):
        log.close()
        for path in log.directory.glob("*.snapshot"):
            path.unlink()
        log = open_log(clean=clean, recovery_point=recovery_point, segment_bytes=640)
        assert _snapshots(log) == expected


@pytest.mark.parametrize("empty_active", [False, True])
def test_retention_takes_the_snapshots_of_its_segments(
    open_log: OpenLog, manual_clock: ManualClock, empty_active: bool
) -> None:
    log = open_log(retention_ms=60_000)
    producer = Producer(log, 1)
    for last in (False, False, True):
        producer.append()
        if empty_active or not last:
            log.roll()
    replicate(log)
    assert len(_snapshots(log)) == (3 if empty_active else 2)
    manual_clock.advance(60_001)
    log.delete_old_segments()
    log.purge_deleted(manual_clock.now_ms())
    assert len(_snapshots(log)) == 1
    assert log.log_start_offset == 3


def test_a_later_log_start_takes_snapshots_and_keeps_producers(open_log: OpenLog, manual_clock: ManualClock) -> None:
    log = open_log()
    for producer_id in (1, 2):
        Producer(log, producer_id).append()
        log.roll()
    assert _snapshots(log) == [1, 2]
    replicate(log)
    log.increment_log_start_offset(2, "records deleted")
    log.delete_old_segments()
    log.purge_deleted(manual_clock.now_ms())
    assert _snapshots(log) == [2]
    assert {i: entry.last_sequence for i, entry in log.producers.producers.items()} == {1: 0, 2: 0}


def test_producers_of_deleted_segments_are_known_until_they_expire(open_log: OpenLog) -> None:
    size = len(Producer(open_log(), 1).batch())
    log = open_log(segment_bytes=size, retention_bytes=size * 2)
    Producer(log, 1).append()
    two = Producer(log, 2)
    two.append()
    two.append()
    assert len(log.segments) == 3
    replicate(log)
    log.delete_old_segments()
    assert len(log.segments) == 2
    assert set(log.producers.producers) == {1, 2}


def test_a_silent_producer_expires(open_log: OpenLog, manual_clock: ManualClock) -> None:
    log = open_log()
    Producer(log, 23).append(timestamp_ms=NOW_MS)
    for advanced, known in ((100, {23}), (100, set())):
        manual_clock.advance(advanced)
        log.expire_producers(manual_clock.now_ms(), 200)
        assert set(log.producers.producers) == known


def test_a_snapshot_behind_the_end_goes_at_the_start(open_log: OpenLog) -> None:
    log = open_log()
    log.close()
    (log.directory / snapshot_file(42)).touch()
    assert 42 not in _snapshots(open_log())


def test_what_a_producer_has_is_seen(open_log: OpenLog) -> None:
    log = open_log()
    transactional = Producer(log, 1, 5, transactional=True)
    transactional.append(5)
    entry = log.producers.producers[1]
    assert (entry.epoch, entry.last_sequence, entry.current_txn_first_offset, entry.coordinator_epoch) == (
        5,
        4,
        0,
        -1,
    )
    transactional.commit(coordinator_epoch=15)
    entry = log.producers.producers[1]
    assert (entry.epoch, entry.last_sequence, entry.current_txn_first_offset, entry.coordinator_epoch) == (
        5,
        4,
        None,
        15,
    )
    Producer(log, 2, 5).append(3)
    entry = log.producers.producers[2]
    assert (entry.epoch, entry.last_sequence, entry.current_txn_first_offset, entry.coordinator_epoch) == (
        5,
        2,
        None,
        -1,
    )


def test_the_recovery_point_stays_when_the_snapshot_of_a_roll_cannot_be_written(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    append(log)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log.producers, "take_snapshot", refuse)
    with pytest.raises(Exception, match="No space left"):
        log.roll()
    assert log.recovery_point == 0
    assert log.append_as_leader(batch(), leader_epoch=0).first_offset == 1


def test_a_marker_of_a_kind_that_no_transaction_has_does_not_keep_the_log_from_being_opened(
    open_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log()
    Producer(log, 7).append()
    log.close()
    key = (0).to_bytes(2, "big") + (3).to_bytes(2, "big")  # SNAPSHOT_HEADER
    strange = build_batch(
        [Record(1, NOW_MS, key, b"\x00" * 6)],
        base_offset=1,
        producer_id=7,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
    )
    with (log.directory / f"{0:020d}.log").open("ab") as file:
        file.write(strange)
    log = open_log(clean=True, recovery_point=2)
    assert log.log_end_offset == 2
    assert list(log.producers.producers) == [7]
    assert "the producer state after offset 1 is not known" in caplog.text
    log.close()
