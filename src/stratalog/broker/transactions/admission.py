"""Whether a partition may take the records of a transaction: asked before its first batch there (KIP-890).

Without it a batch that arrives after its transaction has ended would open one that nobody ever ends, and stop every
`read_committed` consumer of the partition. Clients of before 4.0 have added the partition themselves, and the
coordinator is asked whether it knows; for newer ones (Produce 12, TxnOffsetCommit 5) the partition is added here.
"""

from __future__ import annotations

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
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    TransactionAbortableError,
)

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices
    from stratalog.engine import Partition
    from stratalog.log.producers import VerificationGuard

#: First versions of Produce whose clients know TRANSACTION_ABORTABLE, and leave adding partitions to the broker.
_PRODUCE_ABORTABLE_FROM = 11
_PRODUCE_ADDS_FROM = 12
_COMMIT_ABORTABLE_FROM = 4
_COMMIT_ADDS_FROM = 5


class ClientSupport(Enum):
    """What the client of a request knows of KIP-890."""

    #: Nothing: TRANSACTION_ABORTABLE has to be told as INVALID_TXN_STATE.
    NONE = auto()
    #: TRANSACTION_ABORTABLE.
    ABORTABLE = auto()
    #: Partitions are added by the broker.
    ADDS = auto()

    @classmethod
    def of_produce(cls, version: int) -> ClientSupport:
        return cls._of(version, _PRODUCE_ABORTABLE_FROM, _PRODUCE_ADDS_FROM)

    @classmethod
    def of_commit(cls, version: int) -> ClientSupport:
        """Of TxnOffsetCommit."""
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
    """Return the guard that opens the log to the producer's transaction, or None when none is needed.

    InvalidProducerEpochError, InvalidProducerIdMappingError, InvalidTxnStateError or TransactionAbortableError, and
    NotEnoughReplicasError for what the client has to try again.
    """
    adds = support is ClientSupport.ADDS
    if not adds and not broker.config["transaction.partition.verification.enable"]:
        return None
    guard = partition.log.start_verification(producer.id, sequence, producer.epoch, supports_epoch_bump=adds)
    if guard is None:
        return None
    at = TopicPartition(partition.topic, partition.partition)
    try:
        if adds:
            broker.transactions.add_partitions(transactional_id, producer, [at], EPOCH_BUMP_FROM)
        else:
            broker.transactions.check_in_transaction(transactional_id, producer, at)
    except ProducerFencedError as error:
        raise InvalidProducerEpochError(str(error)) from error
    except TransactionAbortableError as error:
        if support is ClientSupport.NONE:
            raise InvalidTxnStateError(str(error)) from error
        raise
    except ConcurrentTransactionsError as error:
        if adds:
            raise
        raise NotEnoughReplicasError(str(error)) from error
    except (NotCoordinatorError, CoordinatorNotAvailableError, CoordinatorLoadInProgressError) as error:
        raise NotEnoughReplicasError(str(error)) from error
    return guard
