"""Transactions in a log: where they begin, who may end them, what the abort index gets."""

from __future__ import annotations

import pytest

from stratalog.errors import InvalidProducerEpochError, KafkaStorageError, TransactionCoordinatorFencedError
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.control import ControlType
from tests.log.conftest import OpenLog
from tests.log.writers import Producer, append, replicate

ABORTED = [(1, 0, 29, 8), (2, 8, 74, 36)]


def _aborted(log: PartitionLog) -> list[tuple[int, int, int, int]]:
    return [
        (a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset)
        for segment in log.segments
        for a in segment.txn_index.all
    ]


def _interleave(log: PartitionLog) -> None:
    """Four transactions of 1 to 4 among plain records; 1 and 2 are aborted."""
    one, two, three, four = (Producer(log, i, transactional=True) for i in (1, 2, 3, 4))
    one.append(5)
    append(log, 3)
    two.append(2)
    one.append(4)
    three.append(3)
    append(log, 2)
    one.append(10)
    one.abort()
    two.append(6)
    four.append(3)
    append(log, 10)
    three.append(9)
    three.commit()
    four.append(8)
    two.append(7)
    two.abort()
    append(log, 10)
    four.append(4)
    four.commit()


def _assert_aborts_are_known(log: PartitionLog) -> None:
    assert _aborted(log) == ABORTED
    log.update_high_watermark(30)
    assert log.last_stable_offset == 8
    log.update_high_watermark(75)
    assert log.last_stable_offset == 36
    replicate(log)
    assert log.last_stable_offset == log.log_end_offset == 90


def test_aborts_are_indexed_with_the_stable_offset_of_their_moment(open_log: OpenLog) -> None:
    log = open_log()
    _interleave(log)
    _assert_aborts_are_known(log)


def test_a_follower_indexes_aborts_as_its_leader(open_log: OpenLog, tmp_path_factory: pytest.TempPathFactory) -> None:
    leader = PartitionLog.open(tmp_path_factory.mktemp("leader") / "foo-0", open_log().config)
    _interleave(leader)
    data = leader.read(0, 1 << 20, isolation=Isolation.LOG_END)
    assert data.slice is not None
    follower = open_log()
    follower.append_as_follower(data.slice.read())
    _assert_aborts_are_known(follower)


def test_plain_records_are_stable_at_once(open_log: OpenLog) -> None:
    log = open_log()
    append(log, 3)
    assert log.producers.first_unstable_offset is None


def test_a_transaction_is_stable_when_its_end_is_replicated(open_log: OpenLog) -> None:
    log = open_log()
    producer = Producer(log, 137, 5, transactional=True)
    producer.append(3)
    assert log.producers.first_unstable_offset == 0
    producer.append()
    assert log.producers.first_unstable_offset == 0
    end = producer.commit().last_offset
    assert log.producers.first_unstable_offset == 0
    log.update_high_watermark(end + 1)
    assert log.producers.first_unstable_offset is None


def test_of_two_open_transactions_the_older_counts(open_log: OpenLog) -> None:
    log = open_log()
    one, two = (Producer(log, i, 5, transactional=True) for i in (137, 983))
    one.append(3)
    append(log, 3)
    second = two.append(3).first_offset
    assert log.producers.first_unstable_offset == 0
    log.update_high_watermark(one.abort().last_offset + 1)
    assert log.producers.first_unstable_offset == second
    log.update_high_watermark(two.commit().last_offset + 1)
    assert log.producers.first_unstable_offset is None


def test_an_abort_over_several_segments_is_reported_to_a_reader_of_the_first(open_log: OpenLog) -> None:
    size = len(Producer(open_log(), 1, transactional=True).batch(3))
    log = open_log(segment_bytes=size)
    producer = Producer(log, 137, 5, transactional=True)
    producer.append(3)
    producer.append(3)
    assert log.active_segment.base_offset == 3
    log.update_high_watermark(producer.abort().last_offset + 1)
    data = log.read(0, 2048, isolation=Isolation.TXN_COMMITTED)
    assert data.aborted is not None
    assert [(a.producer_id, a.first_offset) for a in data.aborted] == [(137, 0)]
    assert data.slice is not None
    assert [found.base_offset for found in iter_batches(data.slice.read())] == [0]


@pytest.mark.parametrize("clean", [True, False])
def test_an_ended_transaction_is_ended_after_a_restart(open_log: OpenLog, clean: bool) -> None:
    log = open_log()
    producer = Producer(log, 137, 5, transactional=True)
    producer.append(3)
    end = producer.abort().last_offset
    log.close()
    log = open_log(clean=clean)
    log.update_high_watermark(end + 1)
    assert log.producers.first_unstable_offset is None
    assert _aborted(log) == [(137, 0, 3, 4)]


def test_an_older_coordinator_ends_nothing(open_log: OpenLog) -> None:
    log = open_log()
    producer = Producer(log, 1, transactional=True)
    producer.append(10)
    producer.abort(coordinator_epoch=1)
    producer.append(5)
    producer.commit(coordinator_epoch=2)
    with pytest.raises(TransactionCoordinatorFencedError):
        producer.abort(coordinator_epoch=1)


def test_an_older_coordinator_is_known_by_markers_of_empty_transactions(open_log: OpenLog) -> None:
    log = open_log()
    producer = Producer(log, 1, transactional=True)
    producer.append(10)
    producer.commit()
    for _ in range(2):
        producer.abort(coordinator_epoch=2)
    with pytest.raises(TransactionCoordinatorFencedError):
        producer.abort(coordinator_epoch=1)


def test_a_marker_of_an_older_producer_epoch_is_refused(open_log: OpenLog) -> None:
    log = open_log()
    Producer(log, 1, 5, transactional=True).abort(coordinator_epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        Producer(log, 1, 4, transactional=True).abort(coordinator_epoch=1)


def test_an_abort_that_cannot_be_indexed_did_not_happen(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker goes with its index entry: the transaction stays open, and the next attempt ends it."""
    log = open_log()
    producer = Producer(log, 1, transactional=True)
    producer.append(10)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(log.active_segment.txn_index, "append", refuse)
        for _ in range(2):
            with pytest.raises(KafkaStorageError):
                producer.abort(coordinator_epoch=1)
            replicate(log)
            assert (log.log_end_offset, log.last_stable_offset) == (10, 0)
    producer.end(ControlType.ABORT, coordinator_epoch=1)
    replicate(log)
    assert (log.log_end_offset, log.last_stable_offset) == (11, 11)
    log.close()
    log = open_log(clean=False)
    assert _aborted(log) == [(1, 0, 10, 11)]


def test_a_damaged_index_entry_hides_no_aborted_transaction(open_log: OpenLog) -> None:
    """The offset of the entry behind what is read bounds the search for aborts: a wrong one must not be believed."""
    log = open_log(index_interval_bytes=0)
    append(log, 2)
    producer = Producer(log, 1, transactional=True)
    producer.append(3)
    append(log, times=3)
    producer.abort()
    append(log, times=2)
    replicate(log)
    log.close()
    index = next(log.directory.glob("*.index"))
    entries = bytearray(index.read_bytes())
    assert len(entries) > 3 * 8
    entries[8 * 1 : 8 * 1 + 4] = (1).to_bytes(4, "big")  # the second entry: ascending still, of no batch
    entries[0:4] = (0).to_bytes(4, "big")
    index.write_bytes(entries)
    log = open_log(index_interval_bytes=0, clean=True, recovery_point=log.recovery_point)
    replicate(log)
    first = log.read(0, 1, isolation=Isolation.LOG_END).slice
    assert first is not None
    data = log.read(2, 1, isolation=Isolation.TXN_COMMITTED)
    assert data.aborted is not None
    assert [(a.producer_id, a.first_offset) for a in data.aborted] == [(1, 2)]
    log.close()
