"""Verify that a partition belongs to a transaction, before the transaction's first batch there (KIP-890).

Otherwise a batch that arrives after its transaction has ended would open one that never ends, and block all
`read_committed` consumers of the partition. Clients before 4.0 add partitions themselves, and the coordinator verifies
that; for newer ones (Produce 12, TxnOffsetCommit 5) the broker adds the partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from stratalog.broker.groups import TopicPartition
from stratalog.broker.transactions.transaction import EPOCH_BUMP_FROM, ProducerIdAndEpoch
from stratalog.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    StratalogError,
    TransactionAbortableError,
    error_for_code,
    wire_code,
)

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices
    from stratalog.broker.transactions.peers import Codes
    from stratalog.engine import Partition
    from stratalog.log.producers import VerificationGuard

logger = logging.getLogger(__name__)

#: First versions of Produce whose clients know TRANSACTION_ABORTABLE, and let the broker add partitions.
_PRODUCE_ABORTABLE_FROM = 11
_PRODUCE_ADDS_FROM = 12
_COMMIT_ABORTABLE_FROM = 4
_COMMIT_ADDS_FROM = 5


class ClientSupport(Enum):
    """A client's support of KIP-890."""

    #: None: TRANSACTION_ABORTABLE has to be replaced by INVALID_TXN_STATE.
    NONE = auto()
    #: It knows TRANSACTION_ABORTABLE.
    ABORTABLE = auto()
    #: The broker adds partitions.
    ADDS = auto()

    @classmethod
    def of_produce(cls, version: int) -> ClientSupport:
        return cls._of(version, _PRODUCE_ABORTABLE_FROM, _PRODUCE_ADDS_FROM)

    @classmethod
    def of_commit(cls, version: int) -> ClientSupport:
        return cls._of(version, _COMMIT_ABORTABLE_FROM, _COMMIT_ADDS_FROM)

    @classmethod
    def _of(cls, version: int, abortable_from: int, adds_from: int) -> ClientSupport:
        if version >= adds_from:
            return cls.ADDS
        return cls.ABORTABLE if version >= abortable_from else cls.NONE


def admit(
    broker: BrokerServices,
    partition: Partition,
    transactional_id: str | None,
    producer: ProducerIdAndEpoch,
    sequence: int,
    support: ClientSupport,
) -> VerificationGuard | None:
    """Return the guard that opens the log to the producer's transaction, or None if none is needed.

    For a single broker. Raises InvalidProducerEpochError, InvalidProducerIdMappingError, InvalidTxnStateError,
    TransactionAbortableError, or NotEnoughReplicasError if the client has to retry.
    """
    guard = begin_admission(broker, partition, producer, sequence, support)
    if guard is None:
        return None
    at = TopicPartition(partition.topic, partition.partition)
    try:
        _ask_here(broker, transactional_id, producer, [at], support)
    except KafkaError as error:
        raise _as_answered(error, support) from error
    return guard


def begin_admission(
    broker: BrokerServices, partition: Partition, producer: ProducerIdAndEpoch, sequence: int, support: ClientSupport
) -> VerificationGuard | None:
    """Return the guard of a transaction that its coordinator has to verify, or None if it need not."""
    adds = support is ClientSupport.ADDS
    if not adds and not broker.config["transaction.partition.verification.enable"]:
        return None
    return partition.log.start_verification(producer.id, sequence, producer.epoch, supports_epoch_bump=adds)


async def ask_coordinator(
    broker: BrokerServices,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    support: ClientSupport,
) -> dict[TopicPartition, KafkaError]:
    """Ask a transaction's coordinator on any broker; return the errors of partitions that must not be written to.

    If the previous transaction is still ending, retry for a while.
    """
    loop = broker.loop
    until_s = loop.time() + broker.config["add.partitions.to.txn.retry.backoff.max.ms"] / 1000
    pause_s = broker.config["add.partitions.to.txn.retry.backoff.ms"] / 1000
    while True:
        codes = await _codes(broker, transactional_id, producer, partitions, support)
        is_early = support is ClientSupport.ADDS and ConcurrentTransactionsError.code in codes.values()
        if not is_early or loop.time() + pause_s > until_s:
            break
        await asyncio.sleep(pause_s)
    return {
        partition: _as_answered(error_for_code(code)(f"transactional id {transactional_id}"), support)
        for partition, code in codes.items()
        if code
    }


async def _codes(
    broker: BrokerServices,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    support: ClientSupport,
) -> Codes:
    transactions = broker.transactions
    peers = transactions.peers
    assert peers is not None
    log = transactions.log
    found = peers.cluster.leader(log.topic, log.partition_number(transactional_id))
    if found is None or found[0] < 0:
        return dict.fromkeys(partitions, CoordinatorNotAvailableError.code)
    try:
        if found[0] == broker.node_id:
            _ask_here(broker, transactional_id, producer, partitions, support)
            await log.settled(transactional_id)
            return {}
        adds = support is ClientSupport.ADDS
        return await peers.add_partitions(found[0], transactional_id, producer, partitions, verify_only=not adds)
    except KafkaError as error:
        return dict.fromkeys(partitions, wire_code(error))
    except (StratalogError, OSError) as error:
        logger.info("Asking the coordinator of transactional id %s failed: %s", transactional_id, error)
        return dict.fromkeys(partitions, CoordinatorNotAvailableError.code)


def _ask_here(
    broker: BrokerServices,
    transactional_id: str | None,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    support: ClientSupport,
) -> None:
    if support is ClientSupport.ADDS:
        broker.transactions.add_partitions(transactional_id, producer, partitions, EPOCH_BUMP_FROM)
        return
    for partition in partitions:
        broker.transactions.check_in_transaction(transactional_id, producer, partition)


def _as_answered(error: KafkaError, support: ClientSupport) -> KafkaError:
    """Return the error for a client of Produce or TxnOffsetCommit that corresponds to a coordinator's error."""
    if isinstance(error, ProducerFencedError):
        return InvalidProducerEpochError(str(error))
    if isinstance(error, TransactionAbortableError) and support is ClientSupport.NONE:
        return InvalidTxnStateError(str(error))
    if isinstance(error, ConcurrentTransactionsError) and support is not ClientSupport.ADDS:
        return NotEnoughReplicasError(str(error))
    if isinstance(error, NotCoordinatorError | CoordinatorNotAvailableError | CoordinatorLoadInProgressError):
        return NotEnoughReplicasError(str(error))
    return error
