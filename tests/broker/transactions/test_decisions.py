"""The transaction coordinator's rules, without any I/O."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from stratalog.broker.groups.offsets import TopicPartition
from stratalog.broker.transactions import decisions
from stratalog.broker.transactions.states import PREVIOUS_STATES, TransactionState
from stratalog.broker.transactions.transaction import EPOCH_MAX, ProducerIdAndEpoch, Transaction
from stratalog.errors import (
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
)

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
ID = 7


def ids() -> Callable[[], int]:
    return itertools.count(100).__next__


def fresh(epoch: int = 0) -> Transaction:
    return Transaction.new("tx", ID, 60_000, 1).initialised(epoch, -1, 60_000, 2)


def ongoing(epoch: int = 0, client_version: int = 2) -> Transaction:
    return fresh(epoch).with_partitions([ONE], client_version, 3)


def init(known: Transaction, expected: ProducerIdAndEpoch | None = None, *, version: int = 2) -> Transaction:
    return decisions.on_init_producer_id(known, expected, 60_000, 10, ids(), transaction_version=version)


def end(
    known: Transaction, producer: ProducerIdAndEpoch, *, committed: bool = True, version: int = 2
) -> Transaction | None:
    return decisions.on_end(known, producer, version, 10, ids(), committed=committed)


def ended(known: Transaction, producer: ProducerIdAndEpoch, *, committed: bool = True, version: int = 2) -> Transaction:
    done = end(known, producer, committed=committed, version=version)
    assert done is not None
    return done


STEPS: dict[TransactionState, Callable[[Transaction], Transaction]] = {
    TransactionState.EMPTY: lambda known: known.initialised(1, -1, 1, 4),
    TransactionState.ONGOING: lambda known: known.with_partitions([TWO], 2, 4),
    TransactionState.PREPARE_COMMIT: lambda known: known.ended(2, 4, committed=True),
    TransactionState.PREPARE_ABORT: lambda known: known.ended(2, 4, committed=False),
}


@pytest.mark.parametrize("before", TransactionState)
@pytest.mark.parametrize("after", STEPS)
def test_only_the_moves_of_the_table_are_possible(before: TransactionState, after: TransactionState) -> None:
    known = replace(ongoing(), state=before)
    if before in PREVIOUS_STATES[after]:
        assert STEPS[after](known).state is after
    else:
        with pytest.raises(AssertionError, match="cannot become"):
            STEPS[after](known)


def test_what_was_decided_is_what_is_completed() -> None:
    for committed, state in (
        (True, TransactionState.COMPLETE_COMMIT),
        (False, TransactionState.COMPLETE_ABORT),
    ):
        done = ongoing().ended(2, 4, committed=committed).completed(5)
        assert (done.state, done.partitions, done.last_update_ms) == (state, frozenset(), 5)


def test_the_epoch_rises_with_each_end_of_a_new_client_and_not_of_an_old_one() -> None:
    assert ended(ongoing(3), ProducerIdAndEpoch(ID, 3)).completed(5).producer == ProducerIdAndEpoch(ID, 4)
    assert ended(ongoing(3), ProducerIdAndEpoch(ID, 3), version=0).completed(5).producer == ProducerIdAndEpoch(ID, 3)


def test_the_last_epoch_gives_way_to_a_new_producer_id_and_a_retry_is_known() -> None:
    last = ProducerIdAndEpoch(ID, EPOCH_MAX - 1)
    prepared = ended(ongoing(last.epoch), last)
    assert prepared.producer == ProducerIdAndEpoch(ID, EPOCH_MAX)
    done = prepared.completed(5)
    assert done.producer == ProducerIdAndEpoch(100, 0)
    assert end(done, last) is None
    with pytest.raises(InvalidTxnStateError):
        end(done, last, committed=False)
    with pytest.raises(KafkaError):
        end(done, ProducerIdAndEpoch(ID, EPOCH_MAX))


def test_an_init_at_the_last_epoch_gets_a_new_producer_id() -> None:
    last = ProducerIdAndEpoch(ID, EPOCH_MAX - 1)
    assert init(fresh(last.epoch)).producer == ProducerIdAndEpoch(100, 0)
    rotated = init(fresh(last.epoch), last)
    assert rotated.producer == ProducerIdAndEpoch(100, 0)
    assert init(rotated, last).producer == ProducerIdAndEpoch(100, 0)  # a retry: the same again


@pytest.mark.parametrize("version", [0, 2])
def test_a_fence_raises_the_epoch_once_and_never_beyond_the_largest(version: int) -> None:
    aborted = init(ongoing(3), version=version)
    assert (aborted.state, aborted.producer_epoch) == (TransactionState.PREPARE_ABORT, 4)
    assert init(ongoing(EPOCH_MAX - 1), version=version).producer_epoch == EPOCH_MAX
    assert init(ongoing(EPOCH_MAX), version=version).producer_epoch == EPOCH_MAX
    again = init(init(ongoing(EPOCH_MAX - 1), version=version).completed(11), version=version)
    # Under version 2 the end has brought the new id.
    assert again.producer == ProducerIdAndEpoch(100, 1 if version == 2 else 0)


def test_a_fence_at_the_last_epoch_gives_way_to_a_new_producer_id() -> None:
    """Under version 2 an abort by the broker is an end like any other. As `endTransaction` of Kafka 4.4, which asks for
    a new producer id whether a client ends the transaction or a fence. The retry of a producer that was fenced so came
    to epoch 32767, which is no one's.
    """
    known = fresh(EPOCH_MAX - 3)
    for expected in (EPOCH_MAX - 2, EPOCH_MAX - 1):
        known = init(known, known.producer)
        assert known.producer == (ID, expected)
    fenced = init(known.with_partitions([ONE], 2, 4))
    assert (fenced.state, fenced.producer) == (TransactionState.PREPARE_ABORT, (ID, EPOCH_MAX))
    done = fenced.completed(5)
    assert (done.producer, done.next_producer_id) == ((100, 0), -1)
    retried = init(done, ProducerIdAndEpoch(ID, EPOCH_MAX - 1))
    assert retried.producer == (100, 0)
    assert init(done, None).producer == (100, 1)


def test_time_that_is_over_at_the_last_epoch_gives_way_to_a_new_producer_id() -> None:
    known = ongoing(EPOCH_MAX - 1)
    assert decisions.on_fence(known, 9, ids(), transaction_version=2).completed(9).producer == (100, 0)
    old = decisions.on_fence(known, 9, ids(), transaction_version=1).completed(9)
    assert old.producer == (ID, EPOCH_MAX)
    assert init(old, None).producer == (100, 0)
    with pytest.raises(ProducerFencedError):
        init(old, known.producer)


def test_no_one_gets_in_while_the_markers_are_not_all_written() -> None:
    prepared = ended(ongoing(), ProducerIdAndEpoch(ID, 0))
    with pytest.raises(ConcurrentTransactionsError):
        init(prepared)
    with pytest.raises(ConcurrentTransactionsError):
        end(prepared, ProducerIdAndEpoch(ID, 0))
    with pytest.raises(InvalidTxnStateError):
        end(prepared, ProducerIdAndEpoch(ID, 0), committed=False)
    with pytest.raises(ConcurrentTransactionsError):
        decisions.on_add_partitions(prepared, prepared.producer, [ONE], 2, 5)
    with pytest.raises(ConcurrentTransactionsError):
        decisions.check_in_transaction(prepared, prepared.producer, ONE)


def test_partitions_are_added_once_and_asked_for() -> None:
    known = ongoing()
    assert decisions.on_add_partitions(known, known.producer, [ONE], 2, 5) is None
    more = decisions.on_add_partitions(known, known.producer, [ONE, TWO], 2, 5)
    assert more is not None
    assert (more.partitions, more.start_ms, more.last_update_ms) == (frozenset({ONE, TWO}), 3, 5)
    decisions.check_in_transaction(known, known.producer, ONE)
    with pytest.raises(TransactionAbortableError):
        decisions.check_in_transaction(known, known.producer, TWO)


def test_a_commit_can_be_repeated_until_the_next_transaction_ends() -> None:
    done = ended(ongoing(), ProducerIdAndEpoch(ID, 0)).completed(5)
    assert end(done, ProducerIdAndEpoch(ID, 0)) is None
    following = done.with_partitions([TWO], 2, 6)
    with pytest.raises(ProducerFencedError):
        end(following, ProducerIdAndEpoch(ID, 0))


def test_time_ends_what_is_open_and_forgets_what_rests() -> None:
    known = ongoing()
    assert not known.is_timed_out(3 + 60_000)
    assert known.is_timed_out(4 + 60_000)
    assert not known.is_expired(10**12, 1)
    done = ended(known, known.producer).completed(100)
    assert not done.is_timed_out(10**12)
    assert not done.is_expired(199, 100)
    assert done.is_expired(200, 100)
