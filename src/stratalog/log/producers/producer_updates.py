"""The batches of one append against what is known of their producers: duplicates, fencing, sequences, transactions.

Validated and not yet applied, so that a refused batch leaves no trace. Kafka's `ProducerAppendInfo`, and what
`UnifiedLog.analyzeAndValidateProducerState` asks before it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from stratalog.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
    UnknownServerError,
)
from stratalog.log.producers.producer_entry import BatchMetadata, ProducerEntry
from stratalog.log.producers.producer_verification import OpenVerifications, VerificationGuard
from stratalog.records import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    TRANSACTIONAL_BIT,
    ControlType,
    RecordBatch,
    parse_control_key,
    parse_control_value,
)

logger = logging.getLogger(__name__)

#: Who appends. Sequences are checked for clients only; replication (and recovery) takes what the log has.
AppendOrigin = Literal["client", "coordinator", "internal", "replication"]

PRODUCER_EPOCH_MAX: Final = 0x7FFF
#: That of a marker whose sender does not say what it ends.
UNKNOWN_TRANSACTION_VERSION: Final = -1
_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class DuplicateOf(NamedTuple):
    """The batch that is in the log already."""

    first_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction with data in this partition whose marker was appended. `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class PendingProducer:
    """The changes of one append to one producer (Kafka's `ProducerAppendInfo`)."""

    __slots__ = ("current", "ends_verification", "started", "updated")

    def __init__(self, producer_id: int, current: ProducerEntry | None) -> None:
        self.current = current or ProducerEntry(producer_id)
        now = self.current
        self.updated = ProducerEntry(
            producer_id, now.epoch, now.coordinator_epoch, now.last_timestamp_ms, now.current_txn_first_offset
        )
        self.started: list[int] = []
        #: Whether the append begins or ends the transaction that a verification is about.
        self.ends_verification = False

    def follow(self, batches: Sequence[BatchMetadata]) -> None:
        """Batches of the same append that came before, in the epoch of `current`."""
        if batches:
            self.updated.batches.extend(batches)
            self.updated.last_timestamp_ms = batches[-1].timestamp_ms


class ProducerUpdates:
    """The batches of one append, validated and not yet applied."""

    def __init__(
        self,
        producers: Mapping[int, ProducerEntry],
        origin: AppendOrigin,
        name: str,
        *,
        verifications: OpenVerifications,
        guard: VerificationGuard | None = None,
        guard_required: bool = False,
    ) -> None:
        self._producers = producers
        self._origin = origin
        self._name = name
        self._verifications = verifications
        self._guard = guard
        self._guard_required = guard_required
        self.pending: dict[int, PendingProducer] = {}
        #: Batches of producers that only go on where their last batch ended; a producer is here or in `_pending`.
        self.following: dict[int, list[BatchMetadata]] = {}
        self.completed: list[CompletedTransaction] = []

    def add(self, batch: RecordBatch, *, transaction_version: int = 0) -> DuplicateOf | None:
        """Validate a batch whose offsets are assigned; a duplicate of a batch in the log is reported, and not added.

        A batch without a producer id is nothing to us. `transaction_version` 2 demands that a marker's epoch is above
        the producer's (KIP-890). Raises OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError,
        TransactionCoordinatorFencedError; CorruptRecordError or InvalidRecordError for a damaged marker;
        UnknownServerError for one without the version of its transaction.
        """
        producer_id = batch.producer_id
        if producer_id < 0:
            return None
        known = self._producers.get(producer_id)
        if known is not None and self._origin == "client":
            if self._add_following(known, batch):
                return None
            found = known.duplicate_of(batch.producer_epoch, batch.base_sequence, batch.last_sequence)
            if found is not None:
                return DuplicateOf(found.first_offset, found.last_offset, found.timestamp_ms)
        if self._guard_required and batch.is_transactional:
            self._check_guard(known, batch)
        pending = self.pending.get(producer_id)
        if pending is None:
            pending = self.pending[producer_id] = PendingProducer(producer_id, known)
            pending.follow(self.following.pop(producer_id, ()))
        if batch.is_control:
            self._add_marker(pending, batch, transaction_version)
        else:
            self._add_data(pending, batch)
        if batch.is_transactional and not self._is_of_the_transaction_before(batch):
            pending.ends_verification = True
        return None

    def _is_of_the_transaction_before(self, batch: RecordBatch) -> bool:
        """Return whether a batch is the marker before the transaction that is verified now.

        With transactions version 2 a producer begins the next one while markers are still written; they have its epoch.
        """
        verification = self._verifications.get(batch.producer_id)
        return (
            verification is not None
            and verification.supports_epoch_bump
            and batch.is_control
            and batch.producer_epoch == verification.epoch
        )

    def _check_guard(self, known: ProducerEntry | None, batch: RecordBatch) -> None:
        """Begin a transaction only if the coordinator knows of it."""
        if batch.is_control or self._origin not in ("client", "coordinator"):
            return
        if known is not None and known.epoch == batch.producer_epoch and known.current_txn_first_offset is not None:
            return
        if known is not None:  # clients recover from this error, and not from the next one
            self._check_epoch(known, batch.producer_epoch, batch.base_offset)
        verification = self._verifications.get(batch.producer_id)
        if verification is None or verification.guard is not self._guard:
            raise InvalidTxnStateError(
                f"{self._name}: the batch of producer {batch.producer_id} is of no transaction that is open here"
            )

    def _add_following(self, known: ProducerEntry, batch: RecordBatch) -> bool:
        """Add the usual batch, outside of transactions and next in sequence.

        False for any other, which is not looked at.

        It cannot be a duplicate: the five batches kept do not span all sequences.
        """
        producer_id = known.producer_id
        following = self.following.get(producer_id)
        if following is not None:
            last = following[-1]
        elif known.batches and known.current_txn_first_offset is None and producer_id not in self.pending:
            last = known.batches[-1]
        else:
            return False
        sequence = batch.base_sequence
        if (
            sequence != last.last_sequence + 1
            or batch.producer_epoch != known.epoch
            or batch.attributes & _TRANSACTION_BITS
            or self._verifications
        ):
            return False
        delta = batch.last_offset_delta
        added = BatchMetadata((sequence + delta) & SEQUENCE_MAX, batch.last_offset, delta, batch.max_timestamp)
        if following is None:
            self.following[producer_id] = [added]
        else:
            following.append(added)
        return True

    def _add_data(self, pending: PendingProducer, batch: RecordBatch) -> None:
        updated, first_offset, last_offset = pending.updated, batch.base_offset, batch.last_offset
        self._check_epoch(updated, batch.producer_epoch, first_offset)
        if self._origin == "client":
            self._check_sequence(pending, batch)
        updated.enter_epoch(batch.producer_epoch)
        updated.batches.append(
            BatchMetadata(batch.last_sequence, last_offset, last_offset - first_offset, batch.max_timestamp)
        )
        updated.last_timestamp_ms = batch.max_timestamp
        if updated.current_txn_first_offset is not None and not batch.is_transactional:
            raise InvalidTxnStateError(
                f"{self._name}: producer {updated.producer_id} has an open transaction, but its batch at offset"
                f" {first_offset} is not transactional"
            )
        if updated.current_txn_first_offset is None and batch.is_transactional:
            updated.current_txn_first_offset = first_offset
            pending.started.append(first_offset)

    def _add_marker(self, pending: PendingProducer, batch: RecordBatch, transaction_version: int) -> None:
        updated, offset = pending.updated, batch.base_offset
        marker = _parse_marker(batch)
        if marker is None:
            return
        control_type, coordinator_epoch, timestamp_ms = marker
        self._check_marker_epoch(updated, batch.producer_epoch, offset, transaction_version)
        if transaction_version == UNKNOWN_TRANSACTION_VERSION and self._origin != "replication":
            raise UnknownServerError(f"{self._name}: a marker without the version of its transaction")
        if updated.coordinator_epoch > coordinator_epoch:
            message = (
                f"{self._name}: marker of producer {updated.producer_id} at offset {offset} comes from coordinator "
                "epoch"
                f" {coordinator_epoch}, but epoch {updated.coordinator_epoch} is known"
            )
            if self._origin != "replication":
                raise TransactionCoordinatorFencedError(message)
            logger.info("%s", message)
        if updated.current_txn_first_offset is not None:
            self.completed.append(
                CompletedTransaction(
                    updated.producer_id,
                    updated.current_txn_first_offset,
                    offset,
                    control_type is ControlType.ABORT,
                )
            )
        updated.enter_epoch(batch.producer_epoch)
        updated.coordinator_epoch = coordinator_epoch
        updated.current_txn_first_offset = None
        updated.last_timestamp_ms = timestamp_ms

    def _check_marker_epoch(self, updated: ProducerEntry, epoch: int, offset: int, transaction_version: int) -> None:
        if transaction_version < 2:
            self._check_epoch(updated, epoch, offset)
        elif epoch < updated.epoch or (
            epoch == updated.epoch and updated.current_txn_first_offset is not None and epoch != PRODUCER_EPOCH_MAX
        ):
            self._refuse_epoch(updated, epoch, offset, "not larger than")

    def _check_epoch(self, updated: ProducerEntry, epoch: int, offset: int) -> None:
        if epoch < updated.epoch:
            self._refuse_epoch(updated, epoch, offset, "smaller than")

    def _refuse_epoch(self, updated: ProducerEntry, epoch: int, offset: int, relation: str) -> None:
        message = (
            f"{self._name}: epoch {epoch} of producer {updated.producer_id} at offset {offset} is {relation} the last"
            f" seen epoch {updated.epoch}"
        )
        if self._origin != "replication":
            raise InvalidProducerEpochError(message)
        logger.warning("%s", message)

    def _check_sequence(self, pending: PendingProducer, batch: RecordBatch) -> None:
        updated, current, first = pending.updated, pending.current, batch.base_sequence
        self._check_verified_sequence(current, batch)
        if batch.producer_epoch != updated.epoch:
            if first != 0 and updated.epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceError(
                    f"{self._name}: producer {updated.producer_id} begins epoch {batch.producer_epoch} at offset"
                    f" {batch.base_offset} with sequence {first}, expected 0 (last epoch: {updated.epoch})"
                )
            return
        if updated.batches:
            last = updated.last_sequence
        else:
            last = current.last_sequence if batch.producer_epoch == current.epoch else NO_SEQUENCE
        in_sequence = first == last + 1 or (first == 0 and last == SEQUENCE_MAX)
        if current.epoch != NO_PRODUCER_EPOCH and not in_sequence:
            raise OutOfOrderSequenceError(
                f"{self._name}: producer {updated.producer_id} sent sequence {first} at offset {batch.base_offset},"
                f" its last sequence is {last}"
            )

    def _check_verified_sequence(self, current: ProducerEntry, batch: RecordBatch) -> None:
        """No batch overtakes the one whose verification was asked for first."""
        verification = self._verifications.get(batch.producer_id)
        if verification is None:
            return
        first = batch.base_sequence
        if verification.supports_epoch_bump and first != 0 and not current.batches:
            expected = "0, with which every transaction begins"
        elif first > verification.lowest_sequence:
            expected = f"{verification.lowest_sequence}, the lowest one seen"
        else:
            return
        raise OutOfOrderSequenceError(
            f"{self._name}: producer {batch.producer_id} sent sequence {first} at offset {batch.base_offset}, expected"
            f" {expected}"
        )


def _parse_marker(batch: RecordBatch) -> tuple[ControlType, int, int] | None:
    """Control type, coordinator epoch and timestamp of a transaction marker; None for an empty control batch."""
    record = next(batch.records(), None)
    if record is None:
        return None
    control_type = parse_control_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecordError(
            f"control record at offset {record.offset}: {control_type.name} with a producer id, expected ABORT or "
            "COMMIT"
        )
    return control_type, parse_control_value(record.value).coordinator_epoch, record.timestamp_ms
