"""Producer state: duplicates, sequences, epochs, transactions and snapshots, against a plain model and Kafka's
files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from stratalog.log.index.txn_index import AbortedTransaction
from stratalog.log.producers.producer_entry import ProducerEntry
from stratalog.log.producers.producer_state import ProducerStateManager
from stratalog.log.producers.producer_updates import DuplicateOf, ProducerUpdates
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, control_key, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock

GOLDEN = Path(__file__).parents[1] / "golden" / "dump" / "transactions"
T0 = 1_700_000_000_000
SEQUENCE_MAX = 2**31 - 1


def data(
    offset: int,
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    transactional: bool = False,
    timestamp_ms: int = T0,
) -> RecordBatch:
    records = [Record(offset + n, timestamp_ms, None, b"v") for n in range(count)]
    return RecordBatch(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def marker(
    offset: int,
    kind: ControlType = ControlType.COMMIT,
    *,
    producer_id: int = 1,
    epoch: int = 0,
    coordinator: int = 0,
) -> RecordBatch:
    return RecordBatch(
        end_transaction_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator,
            timestamp_ms=T0,
            base_offset=offset,
        )
    )


Make = Callable[[], ProducerStateManager]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda: ProducerStateManager("orders-0", tmp_path, clock=ManualClock(T0))


@pytest.fixture
def state(make: Make) -> ProducerStateManager:
    return make()


# --- sequences ----------------------------------------------------------------------------------------------------


def test_a_batch_without_producer_is_nothing_to_us(state: ProducerStateManager) -> None:
    batch = data(0, -1, producer_id=-1, epoch=-1)
    assert state.check(batch) is None
    state.update(batch, "client")
    assert state.is_empty
    assert state.map_end_offset == 1


def test_the_last_five_batches_are_known_again(state: ProducerStateManager) -> None:
    for n in range(6):
        state.update(data(10 * n, 2 * n, 2, timestamp_ms=T0 + n), "client")
    for n in range(1, 6):
        assert state.check(data(99, 2 * n, 2)) == DuplicateOf(10 * n, 10 * n + 1, T0 + n)
    with pytest.raises(OutOfOrderSequenceError, match=r"sent sequence 0 .* last sequence is 11"):
        state.check(data(99, 0, 2))
    with pytest.raises(OutOfOrderSequenceError):
        state.check(data(99, 10, 1))  # a part of a batch is no duplicate of it
    assert state.check(data(99, 12)) is None


def test_a_sequence_goes_on_at_zero_after_the_largest(state: ProducerStateManager) -> None:
    state.update(data(0, SEQUENCE_MAX - 1, 1), "client")
    state.update(data(1, SEQUENCE_MAX, 3), "client")  # MAX, 0, 1
    assert state.producers[1].last_sequence == 1
    assert state.check(data(9, SEQUENCE_MAX, 3)) == DuplicateOf(1, 3, T0)
    state.update(data(4, 2), "client")
    state.update(data(5, 3), "client")
    with pytest.raises(OutOfOrderSequenceError):
        state.check(data(6, 0))


def test_exactly_the_largest_sequence_is_followed_by_zero(state: ProducerStateManager) -> None:
    state.update(data(0, SEQUENCE_MAX), "client")
    assert state.check(data(1, 0)) is None


def test_a_producer_that_is_not_known_may_begin_anywhere(state: ProducerStateManager) -> None:
    assert state.check(data(0, 77)) is None


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(state: ProducerStateManager) -> None:
    state.update(data(0, 0), "client")
    with pytest.raises(OutOfOrderSequenceError, match=r"begins epoch 1 .* expected 0"):
        state.check(data(1, 1, epoch=1))
    state.update(data(1, 0, epoch=1), "client")
    with pytest.raises(InvalidProducerEpochError, match=r"epoch 0 of producer 1 .* smaller than the last seen epoch 1"):
        state.check(data(2, 1, epoch=0))
    assert state.check(data(9, 0, epoch=1)) == DuplicateOf(1, 1, T0)


def test_a_refused_batch_leaves_no_trace(state: ProducerStateManager) -> None:
    state.update(data(0, 0), "client")
    before = repr(state.producers)
    for bad in (data(1, 5), data(1, 7, epoch=1)):
        with pytest.raises(OutOfOrderSequenceError):
            state.update(bad, "client")
    assert repr(state.producers) == before
    assert state.map_end_offset == 1


def test_batches_of_one_append_are_checked_against_each_other(state: ProducerStateManager) -> None:
    state.update(data(0, 0), "client")
    updates = state.prepare("client")
    assert updates.add(data(1, 1, 3)) is None
    assert updates.add(data(4, 4, 2)) is None
    assert updates.add(data(6, 0, producer_id=2)) is None
    with pytest.raises(OutOfOrderSequenceError):
        updates.add(data(7, 9))
    assert [batch.last_offset for batch in state.producers[1].batches] == [0]
    updates = state.prepare("client")
    updates.add(data(1, 1, 3))
    updates.add(data(4, 4, 2))
    updates.add(data(6, 0, producer_id=2))
    state.commit(updates)
    assert [batch.last_offset for batch in state.producers[1].batches] == [0, 3, 5]
    assert state.producers[2].last_offset == 6


def test_what_replication_and_recovery_find_is_taken_as_it_is(
    state: ProducerStateManager, caplog: pytest.LogCaptureFixture
) -> None:
    state.update(data(0, 0, epoch=3))
    state.update(data(1, 9, epoch=3))
    with caplog.at_level(logging.WARNING):
        state.update(data(2, 0, epoch=2))
    assert "orders-0" in caplog.text
    assert state.map_end_offset == 3


@dataclass
class ModelProducer:
    """Everything that was accepted, in order; the rules looked up in it."""

    epoch: int = -1
    accepted: list[tuple[int, int, int, int]] = field(default_factory=list)  # epoch, first, last sequence, offset

    def expect(self, epoch: int, first: int, last: int) -> str | int:
        """Name of the outcome, or the offset of the batch that this one repeats."""
        recent = [batch for batch in self.accepted[-5:] if batch[0] == self.epoch]
        for batch in recent:
            if batch[:3] == (epoch, first, last):
                return batch[3]
        if epoch < self.epoch:
            return "epoch"
        if epoch > self.epoch:
            return "ok" if first == 0 or self.epoch == -1 else "sequence"
        return "ok" if first == (recent[-1][2] + 1) % 2**31 else "sequence"


@given(
    attempts=st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(-3, 2), st.integers(1, 3), st.booleans()),
        max_size=40,
    ),
    start=st.sampled_from([0, SEQUENCE_MAX - 4]),
)
@settings(deadline=None, max_examples=200)
def test_every_attempt_ends_as_the_rules_say(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[tuple[int, int, int, int, bool]], start: int
) -> None:
    """A batch is a duplicate iff it is one of the last five of its epoch, else fenced, else out of order, else
    taken."""
    state = ProducerStateManager("t-0", tmp_path_factory.getbasetemp() / "none", clock=ManualClock(T0))
    models = {1: ModelProducer(), 2: ModelProducer()}
    offset = 0
    for producer_id, epoch, shift, count, from_zero in attempts:
        model = models[producer_id]
        known = model.accepted[-1][2] if model.accepted else start - 1
        first = 0 if from_zero else (known + 1 + shift) % 2**31
        last = (first + count - 1) % 2**31
        batch = data(offset, first, count, producer_id=producer_id, epoch=epoch)
        expected = model.expect(epoch, first, last)
        outcome: str | int = "ok"
        try:
            found = state.check(batch)
        except OutOfOrderSequenceError:
            outcome = "sequence"
        except InvalidProducerEpochError:
            outcome = "epoch"
        else:
            if found is not None:
                outcome = found.first_offset
        assert outcome == expected
        if outcome == "ok":
            state.update(batch, "client")
            if epoch != model.epoch:
                model.accepted.clear()
            model.epoch = epoch
            model.accepted.append((epoch, first, last, offset))
            offset += count


# --- transactions --------------------------------------------------------------------------------------------------


def test_an_open_transaction_holds_the_last_stable_offset(state: ProducerStateManager) -> None:
    assert state.last_stable_offset(10) == 10
    state.update(data(3, 0, 2, transactional=True), "client")
    state.update(data(5, 2, 1, transactional=True), "client")
    assert (state.first_unstable_offset, state.first_undecided_offset) == (3, 3)
    assert state.last_stable_offset(10) == 3
    assert state.last_stable_offset(2) == 2
    assert state.update(marker(6), "coordinator") is None
    assert state.first_undecided_offset is None
    assert state.first_unstable_offset == 3  # the marker is not below the high watermark yet
    state.on_high_watermark(6)
    assert state.first_unstable_offset == 3
    state.on_high_watermark(7)
    assert state.first_unstable_offset is None


def test_an_abort_goes_to_the_index_with_the_last_stable_offset_of_that_moment(
    state: ProducerStateManager,
) -> None:
    state.update(data(0, 0, transactional=True, producer_id=1), "client")
    state.update(data(1, 0, transactional=True, producer_id=2), "client")
    assert state.update(marker(2, ControlType.ABORT, producer_id=2), "coordinator") == AbortedTransaction(2, 1, 2, 0)
    assert state.update(marker(3, ControlType.ABORT, producer_id=1), "coordinator") == AbortedTransaction(1, 0, 3, 4)
    assert state.first_unstable_offset == 0


def test_a_marker_without_data_changes_only_epochs(state: ProducerStateManager) -> None:
    assert state.update(marker(0, ControlType.ABORT, epoch=4, coordinator=2), "coordinator") is None
    assert (state.producers[1].epoch, state.producers[1].coordinator_epoch) == (4, 2)
    with pytest.raises(InvalidProducerEpochError):
        state.check(data(1, 0, epoch=3))
    with pytest.raises(OutOfOrderSequenceError):
        state.check(data(1, 3, epoch=4))
    assert state.check(data(1, 0, epoch=4)) is None


def test_a_marker_of_an_older_coordinator_or_producer_is_fenced(state: ProducerStateManager) -> None:
    state.update(marker(0, epoch=4, coordinator=2), "coordinator")
    with pytest.raises(TransactionCoordinatorFencedError, match="coordinator epoch 1, but epoch 2"):
        state.check(marker(1, epoch=4, coordinator=1), "coordinator")
    with pytest.raises(InvalidProducerEpochError):
        state.check(marker(1, epoch=3, coordinator=2), "coordinator")
    state.update(marker(1, epoch=4, coordinator=1), "replication")


def test_with_transactions_version_two_a_marker_needs_a_larger_epoch(state: ProducerStateManager) -> None:
    state.update(data(0, 0, transactional=True, epoch=4), "client")
    with pytest.raises(InvalidProducerEpochError, match="not larger than"):
        state.check(marker(1, epoch=4), "coordinator", transaction_version=2)
    state.update(marker(1, epoch=5), "coordinator", transaction_version=2)
    assert state.check(marker(2, epoch=5), "coordinator", transaction_version=2) is None  # sent again: harmless


def test_data_outside_the_transaction_that_is_open_is_refused(state: ProducerStateManager) -> None:
    state.update(data(0, 0, transactional=True), "client")
    with pytest.raises(InvalidTxnStateError, match="not transactional"):
        state.check(data(1, 1))


def test_a_control_record_that_ends_no_transaction_is_refused(state: ProducerStateManager) -> None:
    for key in (control_key(ControlType.LEADER_CHANGE), b"\0", b"\0\0\0\x09"):
        batch = build_batch([Record(0, T0, key, b"\0" * 6)], producer_id=1, producer_epoch=0, is_control=True)
        with pytest.raises(InvalidRecordError):
            state.check(RecordBatch(batch), "coordinator")
    batch = build_batch(
        [Record(0, T0, control_key(ControlType.ABORT), b"\0")],
        producer_id=1,
        producer_epoch=0,
        is_control=True,
    )
    with pytest.raises(InvalidRecordError):
        state.check(RecordBatch(batch), "coordinator")
    assert state.is_empty


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["data", "commit", "abort"]), st.integers(0, 6)),
        max_size=40,
    )
)
@settings(deadline=None, max_examples=150)
def test_stable_offsets_and_aborts_are_those_of_a_plain_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, int]]
) -> None:
    """The first unstable offset is the smallest of transactions open or ended at or above the high watermark."""
    state = ProducerStateManager("t-0", tmp_path_factory.getbasetemp() / "none", clock=ManualClock(T0))
    open_since: dict[int, int] = {}
    ended: list[tuple[int, int]] = []  # first offset, marker
    sequences = dict.fromkeys(range(1, 5), 0)
    high_watermark = 0
    for offset, (producer_id, step, lag) in enumerate(steps):
        if step == "data":
            state.update(data(offset, sequences[producer_id], producer_id=producer_id, transactional=True), "client")
            sequences[producer_id] += 1
            open_since.setdefault(producer_id, offset)
        else:
            kind = ControlType.COMMIT if step == "commit" else ControlType.ABORT
            found = state.update(marker(offset, kind, producer_id=producer_id), "coordinator")
            first = open_since.pop(producer_id, None)
            expected = None
            if first is not None:
                ended.append((first, offset))
                if step == "abort":
                    stable = min(open_since.values(), default=offset + 1)
                    expected = AbortedTransaction(producer_id, first, offset, stable)
            assert found == expected
        high_watermark = max(high_watermark, offset + 1 - lag)
        state.on_high_watermark(high_watermark)
        undecided = min(open_since.values(), default=None)
        unstable = [first for first, end in ended if end >= high_watermark] + list(open_since.values())
        assert state.first_undecided_offset == undecided
        assert state.first_unstable_offset == min(unstable, default=None)
        assert state.last_stable_offset(high_watermark) == min([high_watermark, *unstable])


def test_a_transaction_that_hangs_is_reported_after_its_time(state: ProducerStateManager) -> None:
    assert not state.has_late_transaction(T0 + 10**12)
    state.update(data(0, 0, transactional=True), "client")
    allowed = state.max_transaction_timeout_ms + 300_000
    assert not state.has_late_transaction(T0 + allowed)
    assert state.has_late_transaction(T0 + allowed + 1)


# --- snapshots, truncation, expiry -----------------------------------------------------------------------------------


def test_replaying_kafkas_log_gives_kafkas_snapshots_and_transaction_index(tmp_path: Path) -> None:
    """The state built from the batches of a log that Kafka wrote is byte for byte the state that Kafka kept of it."""
    state = ProducerStateManager("transactions-0", tmp_path, clock=ManualClock(T0))
    aborted = []
    for log in sorted(GOLDEN.glob("*.log")):
        for batch in iter_batches(log.read_bytes()):
            transaction = state.update(batch)
            if transaction is not None:
                aborted.append(transaction)
        state.take_snapshot()
    names = sorted(path.name for path in GOLDEN.glob("*.snapshot"))
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()
    assert aborted == [AbortedTransaction(5, 4, 7, 8), AbortedTransaction(6, 12, 15, 16)]


def test_a_snapshot_brings_everything_back_but_the_older_batches(make: Make) -> None:
    state = make()
    for n in range(3):
        state.update(data(n, n), "client")
    state.update(data(3, 0, producer_id=9, epoch=7, transactional=True), "client")
    state.take_snapshot()
    again = make()
    again.truncate_and_reload(0, 4, T0)
    assert again.map_end_offset == 4
    assert again.first_unstable_offset == 3
    assert [batch.last_offset for batch in again.producers[1].batches] == [2]
    assert again.check(data(9, 2)) == DuplicateOf(2, 2, T0)
    assert again.check(data(4, 3)) is None
    with pytest.raises(OutOfOrderSequenceError):
        again.check(data(4, 1))
    assert again.producers[9].epoch == 7


def test_open_transactions_of_a_snapshot_are_in_order(make: Make) -> None:
    state = make()
    for offset, producer_id in enumerate((30, 20, 10)):
        state.update(data(offset, 0, producer_id=producer_id, transactional=True), "client")
    state.take_snapshot()
    again = make()
    again.truncate_and_reload(0, 3, T0)
    assert again.first_undecided_offset == 0
    assert again.update(marker(3, ControlType.ABORT, producer_id=20), "coordinator") == AbortedTransaction(20, 1, 3, 0)
    again.update(marker(4, producer_id=30), "coordinator")
    assert again.first_undecided_offset == 2


def test_no_snapshot_is_taken_twice_for_the_same_end(state: ProducerStateManager) -> None:
    assert state.take_snapshot() is None
    state.update(data(0, 0), "client")
    path = state.take_snapshot()
    assert path is not None
    assert path.name == "00000000000000000001.snapshot"
    assert state.take_snapshot() is None
    assert state.take_snapshot(5) is not None
    assert [snapshot.offset for snapshot in state.snapshots] == [1, 5]


def test_a_damaged_snapshot_is_removed_and_the_one_before_it_used(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    state = make()
    for n in range(3):
        state.update(data(n, n), "client")
        path = state.take_snapshot()
    assert path is not None
    path.write_bytes(path.read_bytes()[:-1])
    again = make()
    with caplog.at_level(logging.WARNING):
        again.truncate_and_reload(0, 3, T0)
    assert "00000000000000000003.snapshot" in caplog.text
    assert not path.exists()
    assert again.map_end_offset == 2
    assert again.producers[1].last_sequence == 1


def test_all_snapshots_damaged_means_from_the_log_start(make: Make) -> None:
    state = make()
    state.update(data(10, 0), "client")
    path = state.take_snapshot()
    assert path is not None
    path.write_bytes(b"")
    again = make()
    again.truncate_and_reload(3, 11, T0)
    assert again.map_end_offset == 3
    assert again.is_empty
    assert list(again.snapshots) == []


def test_snapshots_outside_the_log_are_deleted(make: Make) -> None:
    state = make()
    for n in range(6):
        state.update(data(n, n), "client")
        state.take_snapshot()
    again = make()
    again.truncate_and_reload(2, 4, T0)
    assert [snapshot.offset for snapshot in again.snapshots] == [3, 4]
    assert again.map_end_offset == 4
    again.truncate_and_reload(3, 4, T0)  # already there: only the start moves
    assert [snapshot.offset for snapshot in again.snapshots] == [4]
    assert again.producers[1].last_sequence == 3


def test_truncation_forgets_what_was_cut_off(make: Make) -> None:
    state = make()
    state.update(data(0, 0), "client")
    state.take_snapshot()
    state.update(data(1, 1, transactional=True), "client")
    state.truncate_and_reload(0, 1, T0)
    assert state.first_unstable_offset is None
    assert state.check(data(1, 1)) is None
    state.truncate_fully_and_start_at(50)
    assert state.is_empty
    assert state.map_end_offset == 50
    assert list(state.snapshots) == []
    state.update(data(50, 0), "client")
    assert state.take_snapshot() is not None


def test_silent_producers_are_forgotten_unless_their_transaction_is_open(make: Make) -> None:
    state = make()
    state.update(data(0, 0, producer_id=1), "client")
    state.update(data(1, 0, producer_id=2, transactional=True), "client")
    assert state.remove_expired(T0 + state.expiration_ms - 1) == 0
    assert state.remove_expired(T0 + state.expiration_ms) == 1
    assert list(state.producers) == [2]
    state.take_snapshot()
    again = make()
    again.truncate_and_reload(0, 2, T0 + 10 * state.expiration_ms)
    assert list(again.producers) == [2]


def test_a_later_log_start_moves_an_empty_state_along(state: ProducerStateManager) -> None:
    state.update(data(0, 0, transactional=True), "client")
    state.update(marker(1), "coordinator")
    state.on_log_start_offset(2)
    assert state.first_unstable_offset is None
    state.on_log_start_offset(9)
    assert state.map_end_offset == 9


def test_stray_snapshots_go_and_the_one_of_the_clean_stop_stays(make: Make, tmp_path: Path) -> None:
    state = make()
    for offset in (1, 3, 5, 7, 9):
        state.take_snapshot(offset)
    state.snapshots.delete_strays([0, 3, 7])
    assert [snapshot.offset for snapshot in state.snapshots] == [3, 7, 9]
    state.snapshots.delete_strays([0, 3, 7, 20])
    assert [snapshot.offset for snapshot in state.snapshots] == [3, 7]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_snapshot_goes_with_its_segment(state: ProducerStateManager, tmp_path: Path) -> None:
    state.take_snapshot(4)
    state.take_snapshot(8)
    assert state.snapshots.mark_deleted(4) == tmp_path / "00000000000000000004.snapshot.deleted"
    assert state.snapshots.mark_deleted(4) is None
    assert state.snapshots.get(8) == tmp_path / "00000000000000000008.snapshot"
    state.snapshots.delete(8)
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000004.snapshot.deleted"]


def test_errors_have_their_codes() -> None:
    codes = {OutOfOrderSequenceError: 45, InvalidProducerEpochError: 47, InvalidTxnStateError: 48}
    assert {error: error.code for error in codes} == codes
    assert all(issubclass(error, KafkaError) for error in codes)


# --- the short way for batches that follow ----------------------------------------------------------------------------

#: (producer, jump in sequence, records, epoch, transactional or marker) of one batch; mostly such that follow.
_batches = st.tuples(
    st.integers(1, 2),
    st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
    st.integers(1, 3),
    st.sampled_from([0, 0, 0, 0, 1]),
    st.sampled_from(["data", "data", "data", "data", "transactional", "commit", "abort"]),
)


class _PlainUpdates(ProducerUpdates):
    """Without the short way: the oracle."""

    def _add_following(self, known: ProducerEntry, batch: RecordBatch) -> bool:
        return False


@given(
    appends=st.lists(st.lists(_batches, min_size=1, max_size=4), max_size=12),
    first_sequence=st.sampled_from([0, SEQUENCE_MAX - 4]),
)
@settings(deadline=None, max_examples=300)
def test_batches_that_follow_have_the_same_outcome_the_short_way(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[list[tuple[int, int, int, int, str]]],
    first_sequence: int,
) -> None:
    """Whatever is appended, answers, errors and the state after each append equal those of the plain way."""
    directory = tmp_path_factory.getbasetemp() / "no-snapshots"
    managers = [ProducerStateManager("t-0", directory, clock=ManualClock(T0)) for _ in range(2)]
    next_sequence: dict[int, int] = {}
    offset = 0
    for group in appends:
        batches: list[RecordBatch] = []
        end = offset
        for producer_id, jump, count, epoch, kind in group:
            if kind in ("commit", "abort"):
                batches.append(marker(end, ControlType[kind.upper()], producer_id=producer_id, epoch=epoch))
                end += 1
                continue
            expected = next_sequence.get(producer_id, first_sequence)
            sequence = (expected + jump) % (SEQUENCE_MAX + 1)
            next_sequence[producer_id] = (sequence + count) % (SEQUENCE_MAX + 1)
            batches.append(
                data(
                    end,
                    sequence,
                    count,
                    producer_id=producer_id,
                    epoch=epoch,
                    transactional=kind == "transactional",
                    timestamp_ms=T0 + end,
                )
            )
            end += count
        outcomes: list[object] = []
        for manager, kind_of_updates in zip(managers, (ProducerUpdates, _PlainUpdates), strict=True):
            updates = kind_of_updates(manager.producers, "client", manager.name, verifications=manager.verifications)
            try:
                reported = [updates.add(batch) for batch in batches]
                outcomes.append((reported, [] if any(reported) else manager.commit(updates)))
            except KafkaError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]
        short, plain = managers
        assert repr(short.producers) == repr(plain.producers)
        assert short.first_unstable_offset == plain.first_unstable_offset
        offset = end
