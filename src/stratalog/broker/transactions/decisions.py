"""Decide requests about a transactional id: the result is the next `Transaction`, or an error. Pure.

Source: `TransactionCoordinator` of Apache Kafka 4.4. Changes are stored one at a time and synchronously here, so no
request can meet a pending change; CONCURRENT_TRANSACTIONS is only for outcomes whose markers are not all written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.broker.groups import TopicPartition
from stratalog.broker.transactions.states import TransactionState
from stratalog.broker.transactions.transaction import (
    EPOCH_BUMP_FROM,
    EPOCH_MAX,
    ProducerIdAndEpoch,
    Transaction,
    is_epoch_exhausted,
)
from stratalog.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from stratalog.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


def on_init_producer_id(
    known: Transaction,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
    *,
    transaction_version: int,
) -> Transaction:
    """Initialize a producer, or (with `expected`) let it continue after an error.

    The next state is EMPTY, or PREPARE_ABORT if a transaction is open: it is completed first, and the producer retries.
    `transaction_version` is the broker's. Raises ProducerFencedError, ConcurrentTransactionsError.
    """
    if expected is not None and not _may_go_on(known, expected):
        raise _fenced(known, expected)
    if known.state.is_prepared:
        raise ConcurrentTransactionsError(f"{known.transactional_id}: the last transaction is still ending")
    if known.state is TransactionState.ONGOING:
        return on_fence(known, now_ms, new_producer_id, transaction_version=transaction_version)
    epoch = known.producer_epoch
    if known.is_epoch_exhausted and (expected is None or expected.epoch == epoch):
        last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
        return known.rotated(new_producer_id(), last_epoch, timeout_ms, now_ms)
    if expected is None:
        return known.initialised(epoch + 1, NO_PRODUCER_EPOCH, timeout_ms, now_ms)
    if epoch in (NO_PRODUCER_EPOCH, expected.epoch):
        return known.initialised(epoch + 1, epoch, timeout_ms, now_ms)
    if expected.epoch == known.last_producer_epoch:  # a retry whose response was lost
        return known.initialised(epoch, known.last_producer_epoch, timeout_ms, now_ms)
    raise _fenced(known, expected)


def on_fence(
    known: Transaction, now_ms: int, new_producer_id: Callable[[], int], *, transaction_version: int
) -> Transaction:
    """Abort an open transaction on behalf of the broker: another producer was initialized, or it has timed out.

    `transaction_version` is the broker's.
    """
    rises = transaction_version >= EPOCH_BUMP_FROM
    next_id = new_producer_id() if rises and known.is_epoch_exhausted else NO_PRODUCER_ID
    return known.fenced(transaction_version, now_ms, next_id)


def _may_go_on(known: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Return whether the id is new, has this producer id, or this is a retry after an exhausted producer id."""
    return (
        known.producer_epoch == NO_PRODUCER_EPOCH
        or expected.id == known.producer_id
        or (expected.id == known.previous_producer_id and is_epoch_exhausted(expected.epoch))
    )


def on_add_partitions(
    known: Transaction,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """Add partitions; return None if they are part of the transaction already."""
    _check_producer(known, producer)
    added = frozenset(partitions)
    if known.state is TransactionState.ONGOING and added <= known.partitions:
        return None
    return known.with_partitions(added, client_version, now_ms)


def check_in_transaction(known: Transaction, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
    """Raise unless the partition is part of the producer's transaction."""
    _check_producer(known, producer)
    if partition not in known.partitions:
        raise TransactionAbortableError(
            f"{known.transactional_id}: {partition.topic}-{partition.partition} was not added to the transaction"
        )


def _check_producer(known: Transaction, producer: ProducerIdAndEpoch) -> None:
    if known.producer_id != producer.id:
        raise _other_producer_id(known, producer)
    if known.producer_epoch != producer.epoch:
        raise _fenced(known, producer)
    if known.state.is_prepared:
        raise ConcurrentTransactionsError(f"{known.transactional_id}: the last transaction is still ending")


def on_end(
    known: Transaction,
    producer: ProducerIdAndEpoch,
    client_version: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
    *,
    committed: bool,
) -> Transaction | None:
    """End the transaction for a client; return None for a retry of the same end.

    Raises InvalidProducerIdMappingError, ProducerFencedError, ConcurrentTransactionsError, InvalidTxnStateError.
    """
    if client_version >= EPOCH_BUMP_FROM:
        return _on_end_with_rise(known, producer, client_version, now_ms, new_producer_id, committed=committed)
    if known.producer_id != producer.id:
        raise _other_producer_id(known, producer)
    if known.producer_epoch != producer.epoch:
        raise _fenced(known, producer)
    if known.state is TransactionState.ONGOING:
        return known.ended(client_version, now_ms, committed=committed)
    _check_same_outcome(known, committed=committed)
    return None


def _on_end_with_rise(
    known: Transaction,
    producer: ProducerIdAndEpoch,
    client_version: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
    *,
    committed: bool,
) -> Transaction | None:
    """Distinguish a retry (the epoch is one behind) from the end of the next transaction (the epochs are equal)."""
    after_overflow = (
        known.previous_producer_id == producer.id and producer.epoch == EPOCH_MAX - 1 and known.producer_epoch == 0
    )
    is_retry = known.producer_epoch == producer.epoch + 1 or after_overflow
    if known.producer_id != producer.id and not after_overflow:
        raise _other_producer_id(known, producer)
    if known.state.is_prepared:
        is_valid = known.producer_epoch == producer.epoch + 1
    elif known.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        is_valid = is_retry or known.producer_epoch == producer.epoch
    else:
        is_valid = known.producer_epoch == producer.epoch
    if not is_valid:
        raise _fenced(known, producer)
    ends_nothing = known.state is not TransactionState.ONGOING
    if ends_nothing and (known.state.is_prepared or is_retry or committed):
        _check_same_outcome(known, committed=committed, is_retry=is_retry)
        return None
    next_id = new_producer_id() if known.is_epoch_exhausted else NO_PRODUCER_ID
    return known.ended(client_version, now_ms, committed=committed, next_producer_id=next_id)


def _check_same_outcome(known: Transaction, *, committed: bool, is_retry: bool = True) -> None:
    """Raise unless the transaction has ended with this outcome, and its markers are written."""
    prepared = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    if known.state is prepared:
        raise ConcurrentTransactionsError(f"{known.transactional_id}: the transaction is still ending")
    complete = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    if known.state is not complete or not is_retry:
        raise InvalidTxnStateError(
            f"{known.transactional_id}: cannot {'commit' if committed else 'abort'} in state {known.state.title}"
        )


def _other_producer_id(known: Transaction, producer: ProducerIdAndEpoch) -> InvalidProducerIdMappingError:
    return InvalidProducerIdMappingError(
        f"{known.transactional_id}: producer id {producer.id}, but {known.producer_id} is current"
    )


def _fenced(known: Transaction, producer: ProducerIdAndEpoch) -> ProducerFencedError:
    return ProducerFencedError(
        f"{known.transactional_id}: producer {producer.id} epoch {producer.epoch} is fenced by"
        f" producer {known.producer_id} epoch {known.producer_epoch}"
    )
