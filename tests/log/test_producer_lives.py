"""Producers over time: markers, epochs, reloads, expiry, verification; the behaviours that Kafka's own tests name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from stratalog.log.index.txn_index import AbortedTransaction
from stratalog.log.producers.producer_state import LATE_TRANSACTION_BUFFER_MS, ProducerStateManager
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType
from stratalog.testing.clock import ManualClock
from tests.log.test_producer_state import SEQUENCE_MAX, T0, data, marker

Make = Callable[[], ProducerStateManager]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda: ProducerStateManager("orders-0", tmp_path, clock=ManualClock(T0))


@pytest.fixture
def state(make: Make) -> ProducerStateManager:
    return make()


def reloaded(make: Make, end: int, now_ms: int = T0) -> ProducerStateManager:
    again = make()
    again.truncate_and_reload(0, end, now_ms)
    return again


# --- sequences and epochs --------------------------------------------------------------------------------------------


def test_after_the_largest_sequence_only_zero_comes(state: ProducerStateManager) -> None:
    state.update(data(0, SEQUENCE_MAX), "client")
    for wrong in (1, SEQUENCE_MAX, SEQUENCE_MAX - 1):
        with pytest.raises(OutOfOrderSequenceError):
            state.prepare("client").add(data(1, wrong, 2))
    assert state.check(data(1, 0)) is None


def test_preparing_an_append_changes_nothing(state: ProducerStateManager) -> None:
    updates = state.prepare("client")
    updates.add(data(15, 0, 6))
    assert state.is_empty
    state.commit(updates)
    updates = state.prepare("client")
    updates.add(data(21, 6, 5))
    assert (state.producers[1].last_sequence, state.producers[1].last_offset) == (5, 20)
    state.commit(updates)
    assert (state.producers[1].last_sequence, state.producers[1].last_offset) == (10, 25)
    assert [batch.first_sequence for batch in state.producers[1].batches] == [0, 6]


def test_after_a_marker_with_a_new_epoch_sequences_begin_at_zero(state: ProducerStateManager) -> None:
    state.update(data(0, 0, transactional=True), "client")
    state.update(data(1, 1, transactional=True), "client")
    state.update(marker(2, ControlType.ABORT, epoch=1), "coordinator")
    for epoch in (1, 2):
        with pytest.raises(OutOfOrderSequenceError):
            state.check(data(3, 2, epoch=epoch, transactional=True))
    state.update(data(3, 0, epoch=1, transactional=True), "client")
    assert (state.producers[1].epoch, state.producers[1].last_sequence) == (1, 0)


def test_a_new_epoch_without_a_marker_begins_at_zero_too(state: ProducerStateManager) -> None:
    for n in range(3):
        state.update(data(n, n), "client")
    with pytest.raises(OutOfOrderSequenceError, match="begins epoch 1 at offset 3 with sequence 5, expected 0"):
        state.check(data(3, 5, epoch=1))
    assert state.check(data(3, 0, epoch=1)) is None


def test_sequences_of_a_coordinators_batches_are_not_checked(state: ProducerStateManager) -> None:
    state.update(data(99, -1, transactional=True), "coordinator")
    state.update(data(100, -1, transactional=True), "coordinator")
    assert state.producers[1].last_offset == 100


def test_gaps_are_a_replicas_to_take_and_not_a_clients_to_make(state: ProducerStateManager) -> None:
    state.update(data(0, 0), "client")
    with pytest.raises(OutOfOrderSequenceError):
        state.check(data(1, 3))
    assert state.producers[1].last_sequence == 0
    state.update(data(1, 3), "replication")
    assert state.producers[1].last_sequence == 3


# --- transactions ----------------------------------------------------------------------------------------------------


def test_a_transaction_within_one_append_keeps_its_batches(state: ProducerStateManager) -> None:
    state.update(data(9, 0), "client")
    updates = state.prepare("replication")
    updates.add(data(16, 1, 5, transactional=True))
    updates.add(data(26, 6, 5, transactional=True))
    updates.add(marker(40, coordinator=15))
    assert state.commit(updates) == []
    producer = state.producers[1]
    assert (producer.last_sequence, producer.last_offset, producer.coordinator_epoch) == (10, 30, 15)
    assert producer.current_txn_first_offset is None
    assert state.first_undecided_offset is None
    assert state.first_unstable_offset == 16


def test_a_marker_that_fences_leaves_an_epoch_without_batches(state: ProducerStateManager) -> None:
    state.update(data(0, 0, transactional=True), "client")
    state.update(marker(1, ControlType.ABORT, epoch=1), "coordinator")
    producer = state.producers[1]
    assert (producer.current_txn_first_offset, producer.last_offset, len(producer.batches)) == (None, -1, 0)
    assert state.remove_expired(T0 + 1) == 0
    with pytest.raises(InvalidProducerEpochError):
        state.check(data(2, 1, transactional=True))


def test_empty_transactions_of_one_append_leave_no_trace(state: ProducerStateManager) -> None:
    state.update(data(16, 0, 5, transactional=True), "client")
    state.on_high_watermark(21)
    assert state.first_unstable_offset == 16
    updates = state.prepare("replication")
    updates.add(marker(21))
    updates.add(marker(22))
    updates.add(marker(23, ControlType.ABORT))
    updates.add(data(24, 5, 4, transactional=True))
    updates.add(marker(28, ControlType.ABORT))
    updates.add(marker(29, ControlType.ABORT))
    updates.add(data(30, 9, 2, transactional=True))
    assert state.commit(updates) == [AbortedTransaction(1, 24, 28, 29)]
    assert state.first_unstable_offset == 16
    state.on_high_watermark(32)
    assert state.first_unstable_offset == 30


def test_transactions_that_end_in_another_order_than_they_began(state: ProducerStateManager) -> None:
    for producer_id, offset in ((1, 100), (2, 125), (3, 157)):
        state.update(data(offset, 0, producer_id=producer_id, transactional=True), "client")
    ends = []
    for producer_id, offset in ((1, 172), (3, 192), (2, 270)):
        aborted = state.update(marker(offset, ControlType.ABORT, producer_id=producer_id), "coordinator")
        assert aborted is not None
        state.on_high_watermark(offset + 1)
        ends.append((aborted.last_stable_offset, state.first_unstable_offset))
    assert ends == [(125, 125), (125, 125), (271, None)]


def test_an_empty_control_batch_begins_and_ends_nothing(state: ProducerStateManager) -> None:
    """What cleaning leaves of a marker whose transaction is gone."""
    empty = build_batch(
        [],
        base_offset=15,
        last_offset_delta=0,
        producer_id=1,
        producer_epoch=3,
        is_transactional=True,
        is_control=True,
    )
    assert state.update(RecordBatch(empty)) is None
    assert state.producers[1].current_txn_first_offset is None
    assert state.first_unstable_offset is None


# --- late transactions -----------------------------------------------------------------------------------------------


@pytest.fixture
def late(state: ProducerStateManager) -> int:
    """A moment at which a transaction that began at T0 is late."""
    return T0 + state.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS + 1


def test_a_late_transaction_is_late_after_a_reload(make: Make, late: int) -> None:
    state = make()
    state.update(data(0, 0, transactional=True), "client")
    state.update(data(1, 0, producer_id=2, transactional=True, timestamp_ms=late), "client")
    state.take_snapshot()
    assert reloaded(make, 2).has_late_transaction(late)
    assert not reloaded(make, 2).has_late_transaction(late - 1)


def test_a_late_transaction_that_was_cut_off_is_none(state: ProducerStateManager, late: int) -> None:
    for fully in (False, True):
        state.update(data(100, 0, transactional=True), "client")
        assert state.has_late_transaction(late)
        if fully:
            state.truncate_fully_and_start_at(0)
        else:
            state.truncate_and_reload(0, 80)
        assert not state.has_late_transaction(late)


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_an_open_transaction_goes_on_after_a_reload(make: Make) -> None:
    state = make()
    state.update(data(0, 0, transactional=True), "client")
    state.update(data(1, 1, transactional=True), "client")
    state.take_snapshot()
    again = reloaded(make, 2)
    assert again.first_unstable_offset == 0
    again.update(data(2, 2, transactional=True), "client")
    assert again.producers[1].current_txn_first_offset == 0
    with pytest.raises(InvalidTxnStateError):
        again.check(data(3, 3))


def test_a_transaction_that_ended_is_over_after_a_reload(make: Make) -> None:
    state = make()
    state.update(data(0, 0, transactional=True), "client")
    state.update(data(1, 1, transactional=True), "client")
    state.update(marker(2, ControlType.ABORT), "coordinator")
    state.take_snapshot()
    again = reloaded(make, 3)
    assert (again.first_unstable_offset, again.producers[1].current_txn_first_offset) == (None, None)
    assert again.check(data(3, 2, transactional=True)) is None


def test_a_producer_of_whom_only_a_marker_is_known_comes_back(make: Make) -> None:
    state = make()
    state.update(marker(0, ControlType.ABORT, epoch=5, coordinator=3), "coordinator")
    state.take_snapshot()
    again = reloaded(make, 1)
    producer = again.producers[1]
    assert (producer.epoch, producer.coordinator_epoch, producer.last_offset) == (5, 3, -1)
    assert (producer.last_timestamp_ms, len(producer.batches)) == (T0, 0)


def test_a_coordinator_that_was_fenced_stays_so_after_a_reload(make: Make) -> None:
    state = make()
    state.update(data(0, 0, transactional=True), "client")
    state.update(marker(1, coordinator=1), "coordinator")
    state.take_snapshot()
    again = reloaded(make, 2)
    with pytest.raises(TransactionCoordinatorFencedError):
        again.check(marker(2, coordinator=0), "coordinator")


def test_who_is_too_old_does_not_come_back(make: Make) -> None:
    state = make()
    state.update(data(0, 0), "client")
    state.update(data(1, 0, producer_id=2, timestamp_ms=T0 + 10), "client")
    state.take_snapshot()
    expiration = state.expiration_ms
    assert sorted(reloaded(make, 2, T0 + expiration - 1).producers) == [1, 2]
    again = reloaded(make, 2, T0 + expiration)
    assert sorted(again.producers) == [2]
    assert again.check(data(2, 5)) is None  # nothing is known of it: it may begin anywhere


def test_snapshots_that_were_put_there_are_found_by_a_state_made_again(make: Make, tmp_path: Path) -> None:
    state = make()
    state.update(data(1, 0), "client")
    path = state.take_snapshot()
    assert path is not None
    kept = path.read_bytes()
    state.truncate_fully_and_start_at(0)
    assert (list(state.snapshots), list(tmp_path.iterdir())) == ([], [])
    path.write_bytes(kept)
    assert make().snapshots.latest_offset == 2


def test_there_is_no_snapshot_where_none_was_taken(state: ProducerStateManager) -> None:
    assert state.snapshots.get(1) is None
    assert state.snapshots.latest_offset is None


def test_a_snapshot_whose_file_is_gone_cannot_be_marked(state: ProducerStateManager) -> None:
    path = state.take_snapshot(4)
    assert path is not None
    path.unlink()
    assert state.snapshots.mark_deleted(4) is None
    assert state.snapshots.latest_offset is None


def test_all_stray_snapshots_below_the_segments_go(state: ProducerStateManager, tmp_path: Path) -> None:
    for offset in (2, 5, 42):
        state.take_snapshot(offset)
    state.snapshots.delete_strays([42])
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000042.snapshot"]


# --- verification ----------------------------------------------------------------------------------------------------


def test_a_verification_is_one_until_it_was_used(state: ProducerStateManager) -> None:
    state.verification_required = True
    guard = state.start_verification(1, 0, 0)
    assert guard is not None
    assert state.start_verification(1, 0, 0) is guard
    batch = data(0, 0, transactional=True)
    for other in (None, type(guard)()):
        with pytest.raises(InvalidTxnStateError, match="of no transaction that is open"):
            state.prepare("client", guard=other).add(batch)
    updates = state.prepare("client", guard=guard)
    assert updates.add(batch) is None
    state.commit(updates)
    assert not state.verifications
    # From here on the transaction is known to be open.
    assert state.start_verification(1, 1, 0) is None
    assert state.check(data(1, 1, transactional=True)) is None
    state.update(marker(1), "coordinator")
    assert state.start_verification(1, 1, 0) is not guard


def test_a_marker_takes_the_verification_away(state: ProducerStateManager) -> None:
    state.start_verification(1, 0, 0)
    state.update(marker(0, ControlType.ABORT), "coordinator")
    assert not state.verifications


def test_the_marker_of_the_transaction_before_leaves_the_verification_of_the_next_one(
    state: ProducerStateManager,
) -> None:
    """With transactions version 2 the client goes on with the next epoch while markers with it are still written."""
    state.verification_required = True
    first = state.start_verification(1, 0, 0, supports_epoch_bump=True)
    updates = state.prepare("client", guard=first)
    assert updates.add(data(0, 0, transactional=True)) is None
    state.commit(updates)
    guard = state.start_verification(1, 0, 1, supports_epoch_bump=True)
    state.update(marker(1, epoch=1), "coordinator", transaction_version=2)
    assert state.start_verification(1, 0, 1, supports_epoch_bump=True) is guard
    updates = state.prepare("client", guard=guard)
    assert updates.add(data(2, 0, epoch=1, transactional=True)) is None
    state.commit(updates)
    assert not state.verifications


def test_its_own_marker_takes_the_verification_away(state: ProducerStateManager) -> None:
    """It timed out while the coordinator was asked, for example. A client recovers from an old epoch."""
    state.verification_required = True
    guard = state.start_verification(1, 0, 1, supports_epoch_bump=True)
    state.update(marker(0, ControlType.ABORT, epoch=2), "coordinator", transaction_version=2)
    assert not state.verifications
    with pytest.raises(InvalidProducerEpochError, match="is smaller than the last seen epoch 2"):
        state.prepare("client", guard=guard).add(data(1, 0, epoch=1, transactional=True))


def test_replicas_and_batches_outside_of_transactions_need_no_verification(
    state: ProducerStateManager,
) -> None:
    state.verification_required = True
    assert state.check(data(0, 0)) is None
    assert state.check(data(0, 0, transactional=True), "replication") is None
    assert state.check(marker(0), "coordinator") is None
    with pytest.raises(InvalidTxnStateError):
        state.check(data(0, 0, transactional=True), "coordinator")


def test_a_verification_remembers_the_lowest_sequence_of_its_epoch(state: ProducerStateManager) -> None:
    seen = []
    for sequence, epoch in ((3, 1), (5, 1), (1, 1), (0, 0), (7, 2), (9, 2)):
        state.start_verification(1, sequence, epoch)
        known = state.verifications[1]
        seen.append((known.lowest_sequence, known.epoch))
    assert seen == [(3, 1), (3, 1), (1, 1), (1, 1), (7, 2), (7, 2)]


@pytest.mark.parametrize("required", [True, False])
def test_no_batch_overtakes_the_one_that_is_verified(state: ProducerStateManager, required: bool) -> None:
    guard = state.start_verification(1, 0, 0)
    state.verification_required = required
    with pytest.raises(OutOfOrderSequenceError, match="expected 0, the lowest one seen"):
        state.prepare("client", guard=guard).add(data(0, 4, transactional=True))
    assert list(state.verifications) == [1]


def test_nor_a_producer_that_goes_on_outside_of_a_transaction(state: ProducerStateManager) -> None:
    """The short way of the usual batch gives way to an open verification."""
    state.update(data(0, 0), "client")
    state.start_verification(1, 0, 0)
    with pytest.raises(OutOfOrderSequenceError):
        state.check(data(1, 1))


def test_a_verification_of_an_old_epoch_is_refused(state: ProducerStateManager) -> None:
    state.update(data(0, 0, epoch=3), "client")
    with pytest.raises(InvalidProducerEpochError):
        state.start_verification(1, 0, 2)


def test_old_verifications_are_forgotten(state: ProducerStateManager) -> None:
    state.start_verification(1, 0, 0)
    state.remove_expired(T0 + state.expiration_ms - 1)
    assert list(state.verifications) == [1]
    state.remove_expired(T0 + state.expiration_ms)
    assert not state.verifications


def test_with_a_new_epoch_for_each_transaction_the_first_sequence_is_zero(
    state: ProducerStateManager,
) -> None:
    """KIP-890: what is empty because it expired is not taken for a beginning in the middle."""
    state.start_verification(1, 5, 0, supports_epoch_bump=True)
    with pytest.raises(OutOfOrderSequenceError, match="expected 0, with which every transaction begins"):
        state.check(data(0, 5, transactional=True))
    assert state.check(data(0, 0, transactional=True)) is None
    state.start_verification(2, 5, 0)
    assert state.check(data(0, 5, producer_id=2, transactional=True)) is None


def test_a_marker_that_is_written_again_is_taken_with_transactions_version_two(
    state: ProducerStateManager,
) -> None:
    state.update(data(99, 0, transactional=True), "client")
    state.update(marker(100, epoch=1), "coordinator", transaction_version=2)
    assert state.update(marker(101, epoch=1), "coordinator", transaction_version=2) is None
    producer = state.producers[1]
    assert (producer.epoch, producer.current_txn_first_offset) == (1, None)
