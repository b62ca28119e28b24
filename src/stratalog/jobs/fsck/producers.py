"""The producer state that follows from the log: the expected content of snapshots and transaction indexes.

This is a second, plain implementation of `log.producers`, which writes those files. It only applies batches to the
state and validates nothing. A test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stratalog.errors import StratalogError
from stratalog.log.format import ProducerSnapshotEntry
from stratalog.log.index import AbortedTransaction
from stratalog.records import ControlType, RecordBatch, parse_control_key, parse_control_value

NONE = -1


@dataclass(slots=True)
class _Producer:
    epoch: int = NONE
    last_sequence: int = NONE
    last_offset: int = NONE
    offset_delta: int = 0
    timestamp_ms: int = NONE
    coordinator_epoch: int = NONE
    txn_first_offset: int = NONE

    def enter(self, epoch: int) -> None:
        """Begin a new epoch without batches."""
        if epoch != self.epoch:
            self.epoch, self.last_sequence, self.last_offset, self.offset_delta = epoch, NONE, NONE, 0


@dataclass
class Replay:
    """Applies batches in offset order. `is_complete`: it began with the log, or with a sound snapshot."""

    is_complete: bool
    aborted: list[AbortedTransaction] = field(default_factory=list)
    #: Offsets of abort markers whose transaction began before the first known batch.
    unknown_aborts: set[int] = field(default_factory=set)
    _producers: dict[int, _Producer] = field(default_factory=dict)

    def load(self, entries: Iterable[ProducerSnapshotEntry]) -> None:
        for entry in entries:
            self._producers[entry.producer_id] = _Producer(
                epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_offset=entry.last_offset,
                offset_delta=entry.offset_delta,
                timestamp_ms=entry.timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                txn_first_offset=entry.current_txn_first_offset,
            )

    def see(self, batch: RecordBatch) -> None:
        producer = self._producers.setdefault(batch.producer_id, _Producer())
        if batch.is_control:
            self._see_marker(producer, batch)
            return
        producer.enter(batch.producer_epoch)
        producer.last_sequence, producer.last_offset = batch.last_sequence, batch.last_offset
        producer.offset_delta = batch.last_offset_delta
        producer.timestamp_ms = batch.max_timestamp
        if batch.is_transactional and producer.txn_first_offset == NONE:
            producer.txn_first_offset = batch.base_offset

    def _see_marker(self, producer: _Producer, batch: RecordBatch) -> None:
        record = next(batch.records(), None)
        if record is None:
            return
        try:
            control_type = parse_control_key(record.key)
            if control_type not in (ControlType.ABORT, ControlType.COMMIT):
                return
            coordinator_epoch = parse_control_value(record.value).coordinator_epoch
        except StratalogError:
            return  # a batch with a valid CRC that cannot be read does not change the state
        offset, first_offset = batch.base_offset, producer.txn_first_offset
        if control_type is ControlType.ABORT:
            if first_offset == NONE:
                if not self.is_complete:  # otherwise the transaction was empty
                    self.unknown_aborts.add(offset)
            else:
                others = (other.txn_first_offset for other in self._producers.values() if other is not producer)
                stable = min((first for first in others if first != NONE), default=offset + 1)
                self.aborted.append(AbortedTransaction(batch.producer_id, first_offset, offset, stable))
        producer.enter(batch.producer_epoch)
        producer.coordinator_epoch, producer.txn_first_offset = coordinator_epoch, NONE
        producer.timestamp_ms = record.timestamp_ms

    def entries(self) -> list[ProducerSnapshotEntry]:
        """Return the entries of a snapshot taken here if no producer expired, in order of their first batches."""
        return [
            ProducerSnapshotEntry(
                producer_id=producer_id,
                epoch=one.epoch,
                last_sequence=one.last_sequence,
                last_offset=one.last_offset,
                offset_delta=one.offset_delta,
                timestamp_ms=one.timestamp_ms,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_first_offset=one.txn_first_offset,
            )
            for producer_id, one in self._producers.items()
        ]


def difference(stored: Sequence[ProducerSnapshotEntry], expected: Sequence[ProducerSnapshotEntry]) -> str | None:
    """Return the contradiction between a snapshot and a complete log, or None.

    A producer missing from the snapshot may have expired before it was taken, and its coordinator epoch with it.
    """
    known = {entry.producer_id: entry for entry in expected}
    for entry in stored:
        ours = known.get(entry.producer_id)
        if ours is None:
            return f"producer {entry.producer_id}, which has no batch in the log"
        for name in ProducerSnapshotEntry._fields:
            theirs, wanted = getattr(entry, name), getattr(ours, name)
            if theirs == wanted or (name == "coordinator_epoch" and theirs == NONE):
                continue
            return f"producer {entry.producer_id}: {name} {theirs}, by the log {wanted}"
    return None
