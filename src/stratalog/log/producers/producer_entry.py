"""The state of one producer. Kafka's `ProducerStateEntry`."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from stratalog.log.format import ENTRY, ProducerSnapshotEntry
from stratalog.records import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, SEQUENCE_MAX

BATCHES_KEPT: Final = 5
NO_COORDINATOR_EPOCH: Final = -1


class BatchMetadata(NamedTuple):
    """One of a producer's last batches. `offset_delta` is last offset - first offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + SEQUENCE_MAX + 1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


_NO_BATCH: Final = BatchMetadata(NO_SEQUENCE, -1, 0, NO_TIMESTAMP)


class ProducerEntry:
    """One producer. `epoch` -1: nothing is known yet. `current_txn_first_offset` None: no open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp_ms: int = NO_TIMESTAMP,
        current_txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_KEPT)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch; -1 without one."""
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the kept batch with exactly these sequences."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def enter_epoch(self, epoch: int) -> None:
        """Begin a new epoch without batches."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def merge(self, newer: ProducerEntry) -> None:
        self.enter_epoch(newer.epoch)
        self.batches.extend(newer.batches)
        self.coordinator_epoch = newer.coordinator_epoch
        self.current_txn_first_offset = newer.current_txn_first_offset
        self.last_timestamp_ms = newer.last_timestamp_ms

    def to_snapshot(self) -> ProducerSnapshotEntry:
        return ProducerSnapshotEntry(
            producer_id=self.producer_id,
            epoch=self.epoch,
            last_sequence=self.last_sequence,
            last_offset=self.last_offset,
            offset_delta=self.batches[-1].offset_delta if self.batches else 0,
            timestamp_ms=self.last_timestamp_ms,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=-1 if self.current_txn_first_offset is None else self.current_txn_first_offset,
        )

    def packed(self) -> bytes:
        """`to_snapshot` as bytes: a roll writes all producers while appends and reads wait."""
        last = self.batches[-1] if self.batches else _NO_BATCH
        first_offset = self.current_txn_first_offset
        return ENTRY.pack(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            -1 if first_offset is None else first_offset,
        )

    @staticmethod
    def from_snapshot(entry: ProducerSnapshotEntry) -> ProducerEntry:
        txn_first_offset = entry.current_txn_first_offset
        producer = ProducerEntry(
            entry.producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            entry.timestamp_ms,
            txn_first_offset if txn_first_offset >= 0 else None,
        )
        if entry.last_offset >= 0:
            producer.batches.append(
                BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
            )
        return producer

    def __repr__(self) -> str:
        return (
            f"ProducerEntry(producer_id={self.producer_id}, epoch={self.epoch},"
            f" current_txn_first_offset={self.current_txn_first_offset}, coordinator_epoch={self.coordinator_epoch},"
            f" last_timestamp_ms={self.last_timestamp_ms}, batches={list(self.batches)})"
        )
