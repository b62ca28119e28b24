"""What a partition remembers of its producers, to find duplicates, fence zombies and bound the last stable offset.

For each producer id: its epoch, its last five batches, and the offset where its open transaction began. The state as of an
offset is kept in `.snapshot` files and rebuilt from the batches behind it. Kafka's `ProducerStateManager`,
`ProducerStateEntry` and `ProducerAppendInfo`.

An append goes in two steps, so that a refused batch leaves no trace: `prepare` gives a `ProducerUpdates`, to which the
batches of one append are added (this validates them); `commit` applies it once they are in the log.
Not thread-safe: the partition's lock is held.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from stratalog.errors import (
    CorruptSnapshotError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from stratalog.log import producer_snapshot
from stratalog.log.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, parse_file_name, snapshot_file
from stratalog.log.producer_snapshot import ProducerSnapshotEntry
from stratalog.log.txn_index import AbortedTransaction
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_format import (
    CONTROL_BIT,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    SEQUENCE_MAX,
    TRANSACTIONAL_BIT,
)
from stratalog.records.control import ControlType, parse_control_key, parse_control_value
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem, StrPath

logger = logging.getLogger(__name__)

#: Who appends. Sequences are checked for clients only; replication (and recovery) takes what the log has.
AppendOrigin = Literal["client", "coordinator", "internal", "replication"]

BATCHES_KEPT: Final = 5
EXPIRATION_MS_DEFAULT: Final = 86_400_000
TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 900_000
#: A transaction counts as hanging this long after the largest timeout that it may have.
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000

NO_COORDINATOR_EPOCH: Final = -1
PRODUCER_EPOCH_MAX: Final = 0x7FFF
_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class DuplicateOf(NamedTuple):
    """The batch that is in the log already."""

    first_offset: int
    last_offset: int
    timestamp_ms: int


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


class CompletedTransaction(NamedTuple):
    """A transaction with data in this partition whose marker was appended. `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class SnapshotFile(NamedTuple):
    """A snapshot on disk, and the log end offset that it stands for."""

    offset: int
    path: Path


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
        """Of the last batch; -1 without one."""
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The kept batch with exactly these sequences."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None

    def _enter_epoch(self, epoch: int) -> None:
        """A new epoch begins without batches."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def _merge(self, newer: ProducerEntry) -> None:
        self._enter_epoch(newer.epoch)
        self.batches.extend(newer.batches)
        self.coordinator_epoch = newer.coordinator_epoch
        self.current_txn_first_offset = newer.current_txn_first_offset
        self.last_timestamp_ms = newer.last_timestamp_ms

    def to_snapshot(self) -> ProducerSnapshotEntry:
        return ProducerSnapshotEntry(
            self.producer_id,
            self.epoch,
            self.last_sequence,
            self.last_offset,
            self.batches[-1].offset_delta if self.batches else 0,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            -1 if self.current_txn_first_offset is None else self.current_txn_first_offset,
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


class _PendingProducer:
    """What one append does to one producer (Kafka's `ProducerAppendInfo`)."""

    __slots__ = ("current", "started", "updated")

    def __init__(self, producer_id: int, current: ProducerEntry | None) -> None:
        self.current = current or ProducerEntry(producer_id)
        now = self.current
        self.updated = ProducerEntry(
            producer_id, now.epoch, now.coordinator_epoch, now.last_timestamp_ms, now.current_txn_first_offset
        )
        self.started: list[int] = []

    def follow(self, batches: Sequence[BatchMetadata]) -> None:
        """Batches of the same append that came before, in the epoch of `current`."""
        if batches:
            self.updated.batches.extend(batches)
            self.updated.last_timestamp_ms = batches[-1].timestamp_ms


class ProducerUpdates:
    """The batches of one append, validated and not yet applied."""

    def __init__(self, producers: Mapping[int, ProducerEntry], origin: AppendOrigin, name: str) -> None:
        self._producers = producers
        self._origin = origin
        self._name = name
        self._pending: dict[int, _PendingProducer] = {}
        #: Batches of producers that only go on where their last batch ended; a producer is here or in `_pending`.
        self._following: dict[int, list[BatchMetadata]] = {}
        self._completed: list[CompletedTransaction] = []

    def add(self, batch: RecordBatch, *, transaction_version: int = 0) -> DuplicateOf | None:
        """Validate a batch whose offsets are assigned; a duplicate of a batch in the log is told, and not added.

        A batch without a producer id is nothing to us. `transaction_version` 2 demands that a marker's epoch is above
        the producer's (KIP-890). Raises OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError,
        TransactionCoordinatorFencedError; CorruptRecordError or InvalidRecordError for a damaged marker.
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
        pending = self._pending.get(producer_id)
        if pending is None:
            pending = self._pending[producer_id] = _PendingProducer(producer_id, known)
            pending.follow(self._following.pop(producer_id, ()))
        if batch.is_control:
            self._add_marker(pending, batch, transaction_version)
        else:
            self._add_data(pending, batch)
        return None

    def _add_following(self, known: ProducerEntry, batch: RecordBatch) -> bool:
        """Add the usual batch, outside of transactions and next in sequence; False for any other, which is not looked at.

        It cannot be a duplicate: the five batches kept do not span all sequences.
        """
        producer_id = known.producer_id
        following = self._following.get(producer_id)
        if following is not None:
            last = following[-1]
        elif known.batches and known.current_txn_first_offset is None and producer_id not in self._pending:
            last = known.batches[-1]
        else:
            return False
        sequence = batch.base_sequence
        if (
            sequence != last.last_sequence + 1
            or batch.producer_epoch != known.epoch
            or batch.attributes & _TRANSACTION_BITS
        ):
            return False
        delta = batch.last_offset_delta
        added = BatchMetadata(
            (sequence + delta) & SEQUENCE_MAX, batch.last_offset, delta, batch.max_timestamp
        )
        if following is None:
            self._following[producer_id] = [added]
        else:
            following.append(added)
        return True

    def _add_data(self, pending: _PendingProducer, batch: RecordBatch) -> None:
        updated, first_offset, last_offset = pending.updated, batch.base_offset, batch.last_offset
        self._check_epoch(updated, batch.producer_epoch, first_offset)
        if self._origin == "client":
            self._check_sequence(pending, batch)
        updated._enter_epoch(batch.producer_epoch)
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

    def _add_marker(self, pending: _PendingProducer, batch: RecordBatch, transaction_version: int) -> None:
        updated, offset = pending.updated, batch.base_offset
        marker = _parse_marker(batch)
        if marker is None:
            return
        control_type, coordinator_epoch, timestamp_ms = marker
        self._check_marker_epoch(updated, batch.producer_epoch, offset, transaction_version)
        if updated.coordinator_epoch > coordinator_epoch:
            message = (
                f"{self._name}: marker of producer {updated.producer_id} at offset {offset} comes from coordinator epoch"
                f" {coordinator_epoch}, but epoch {updated.coordinator_epoch} is known"
            )
            if self._origin != "replication":
                raise TransactionCoordinatorFencedError(message)
            logger.info("%s", message)
        if updated.current_txn_first_offset is not None:
            self._completed.append(
                CompletedTransaction(
                    updated.producer_id,
                    updated.current_txn_first_offset,
                    offset,
                    control_type is ControlType.ABORT,
                )
            )
        updated._enter_epoch(batch.producer_epoch)
        updated.coordinator_epoch = coordinator_epoch
        updated.current_txn_first_offset = None
        updated.last_timestamp_ms = timestamp_ms

    def _check_marker_epoch(
        self, updated: ProducerEntry, epoch: int, offset: int, transaction_version: int
    ) -> None:
        if transaction_version < 2:
            self._check_epoch(updated, epoch, offset)
        elif epoch < updated.epoch or (
            epoch == updated.epoch
            and updated.current_txn_first_offset is not None
            and epoch != PRODUCER_EPOCH_MAX
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

    def _check_sequence(self, pending: _PendingProducer, batch: RecordBatch) -> None:
        updated, current, first = pending.updated, pending.current, batch.base_sequence
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


def _parse_marker(batch: RecordBatch) -> tuple[ControlType, int, int] | None:
    """Control type, coordinator epoch and timestamp of a transaction marker; None for an empty control batch."""
    record = next(batch.records(), None)
    if record is None:
        return None
    control_type = parse_control_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecordError(
            f"control record at offset {record.offset}: {control_type.name} with a producer id, expected ABORT or COMMIT"
        )
    return control_type, parse_control_value(record.value).coordinator_epoch, record.timestamp_ms


class ProducerStateManager:
    """All producers of one partition. `map_end_offset` is the log end offset that the state stands for."""

    def __init__(
        self,
        topic_partition: object,
        directory: StrPath,
        *,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
        expiration_ms: int = EXPIRATION_MS_DEFAULT,
        max_transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT,
    ) -> None:
        self.name = str(topic_partition)
        self.directory = Path(directory)
        self.expiration_ms = expiration_ms
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        self._clock = clock
        self._fs = fs
        self._producers: dict[int, ProducerEntry] = {}
        #: Buckets that Kafka's HashMap has by now: it grows at 3/4 and never shrinks.
        self._hash_table_size = 16
        #: First offset -> producer id of the open transactions, ascending: they begin as the log grows.
        self._ongoing: dict[int, int] = {}
        #: First offset -> offset of the marker, for transactions whose marker is not below the high watermark yet.
        self._unreplicated: dict[int, int] = {}
        self._snapshots = self._find_snapshots()

    # --- what is known ------------------------------------------------------------------------------------------

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction began."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction began that is open, or whose marker is not below the high watermark yet."""
        ongoing = next(iter(self._ongoing)) if self._ongoing else None
        if not self._unreplicated:
            return ongoing
        unreplicated = min(self._unreplicated)
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Everything below is decided and replicated."""
        first_unstable = self.first_unstable_offset
        return high_watermark if first_unstable is None else min(high_watermark, first_unstable)

    @property
    def oldest_transaction_timestamp_ms(self) -> int:
        """The last time anything was heard of the producer with the oldest open transaction; -1 without one."""
        for producer_id in self._ongoing.values():
            producer = self._producers.get(producer_id)
            return producer.last_timestamp_ms if producer else NO_TIMESTAMP
        return NO_TIMESTAMP

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the oldest open transaction should have been ended long ago."""
        last_ms = self.oldest_transaction_timestamp_ms
        return last_ms > 0 and now_ms - last_ms > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    # --- appends ------------------------------------------------------------------------------------------------

    def prepare(self, origin: AppendOrigin = "client") -> ProducerUpdates:
        """Begin an append; add its batches to the result, then `commit` it."""
        return ProducerUpdates(self._producers, origin, self.name)

    def commit(self, updates: ProducerUpdates) -> list[AbortedTransaction]:
        """Apply an append that is in the log now; gives what `aborted_by` gave before.

        The caller moves `map_end_offset` on.
        """
        for producer_id, batches in updates._following.items():
            producer = self._producers[producer_id]
            producer.batches.extend(batches)
            producer.last_timestamp_ms = batches[-1].timestamp_ms
        if not updates._pending:
            return []
        aborted = self.aborted_by(updates)
        for producer_id, pending in updates._pending.items():
            current = self._producers.get(producer_id)
            if current is None:
                self._add(pending.updated)
            else:
                current._merge(pending.updated)
            for first_offset in pending.started:
                self._ongoing[first_offset] = producer_id
        for completed in updates._completed:
            self._ongoing.pop(completed.first_offset, None)
            self._unreplicated[completed.first_offset] = completed.last_offset
        return aborted

    def aborted_by(self, updates: ProducerUpdates) -> list[AbortedTransaction]:
        """What belongs into the transaction index of the segment that an append goes to; changes nothing."""
        if not updates._completed:
            return []
        ongoing = dict(self._ongoing)
        for producer_id, pending in updates._pending.items():
            ongoing.update(dict.fromkeys(pending.started, producer_id))
        aborted: list[AbortedTransaction] = []
        for completed in updates._completed:
            producer_id, first_offset, last_offset, is_aborted = completed
            if is_aborted:
                others = (first for first, other in ongoing.items() if other != producer_id)
                stable = next(others, last_offset + 1)
                aborted.append(AbortedTransaction(producer_id, first_offset, last_offset, stable))
            ongoing.pop(first_offset, None)
        return aborted

    def check(
        self, batch: RecordBatch, origin: AppendOrigin = "client", *, transaction_version: int = 0
    ) -> DuplicateOf | None:
        """Would this batch be taken? Errors as `ProducerUpdates.add`; changes nothing."""
        return self.prepare(origin).add(batch, transaction_version=transaction_version)

    def update(
        self, batch: RecordBatch, origin: AppendOrigin = "replication", *, transaction_version: int = 0
    ) -> AbortedTransaction | None:
        """Validate and apply one batch, and move `map_end_offset` behind it. For a log that is read again.

        Gives the entry for the transaction index if the batch is an abort marker.
        """
        updates = self.prepare(origin)
        updates.add(batch, transaction_version=transaction_version)
        aborted = self.commit(updates)
        self.map_end_offset = batch.next_offset
        return aborted[0] if aborted else None

    def update_map_end_offset(self, offset: int) -> None:
        self.map_end_offset = offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below it are replicated: their transactions are stable."""
        if self._unreplicated:
            self._drop_replicated(high_watermark)

    def _add(self, producer: ProducerEntry) -> None:
        self._producers[producer.producer_id] = producer
        if len(self._producers) * 4 > self._hash_table_size * 3:
            self._hash_table_size *= 2

    def _drop_replicated(self, offset: int) -> None:
        for first_offset in [first for first, marker in self._unreplicated.items() if marker < offset]:
            del self._unreplicated[first_offset]

    # --- ageing, truncation ---------------------------------------------------------------------------------------

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that were silent for `expiration_ms` and have no open transaction; how many."""
        expired = [pid for pid, producer in self._producers.items() if self._is_expired(producer, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def _is_expired(self, producer: ProducerEntry, now_ms: int) -> bool:
        return (
            producer.current_txn_first_offset is None
            and now_ms - producer.last_timestamp_ms >= self.expiration_ms
        )

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """The log begins later now."""
        self._drop_replicated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def truncate_and_reload(
        self, log_start_offset: int, log_end_offset: int, now_ms: int | None = None
    ) -> None:
        """The log now spans these offsets: drop snapshots outside, and load the newest one unless we stand at the end.

        `map_end_offset` then says from where on the caller has to feed batches to `update`. Damaged snapshots are
        removed with a warning.
        """
        for offset in list(self._snapshots):
            if offset > log_end_offset or offset <= log_start_offset:
                self.delete_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset(log_start_offset)
            return
        self._clear()
        self._load(log_start_offset, self._clock.now_ms() if now_ms is None else now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, snapshots too."""
        self._clear()
        for snapshot_offset in list(self._snapshots):
            self.delete_snapshot(snapshot_offset)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load(self, log_start_offset: int, now_ms: int) -> None:
        while (latest := self.latest_snapshot_offset) is not None:
            path = self._snapshots[latest]
            try:
                entries = producer_snapshot.read(path, self._fs)
            except (CorruptSnapshotError, FileNotFoundError) as error:
                logger.warning("%s: removing a producer snapshot that cannot be used: %s", self.name, error)
                self.delete_snapshot(latest)
                continue
            for producer in map(ProducerEntry.from_snapshot, entries):
                if not self._is_expired(producer, now_ms):
                    self._add(producer)
            self._ongoing = dict(
                sorted(
                    (producer.current_txn_first_offset, producer.producer_id)
                    for producer in self._producers.values()
                    if producer.current_txn_first_offset is not None
                )
            )
            self._last_snapshot_offset = self.map_end_offset = latest
            return
        self._last_snapshot_offset = self.map_end_offset = log_start_offset

    # --- snapshots ------------------------------------------------------------------------------------------------

    @property
    def snapshots(self) -> list[SnapshotFile]:
        """Ascending by offset."""
        return [SnapshotFile(offset, self._snapshots[offset]) for offset in sorted(self._snapshots)]

    @property
    def latest_snapshot_offset(self) -> int | None:
        return max(self._snapshots, default=None)

    def snapshot_for(self, offset: int) -> Path | None:
        return self._snapshots.get(offset)

    def take_snapshot(self, offset: int | None = None, *, sync: bool = True) -> Path | None:
        """Write the state as of `map_end_offset`, unless it did not move since the last one.

        With `offset`, `map_end_offset` is set to that first.
        """
        if offset is not None:
            self.map_end_offset = offset
        end = self.map_end_offset
        if end <= self._last_snapshot_offset:
            return None
        order = producer_snapshot.hash_order(self._producers, self._hash_table_size)
        path = self.directory / snapshot_file(end)
        producer_snapshot.write(
            path, [self._producers[pid].to_snapshot() for pid in order], self._fs, sync=sync
        )
        self._snapshots[end] = path
        self._last_snapshot_offset = end
        return path

    def delete_snapshot(self, offset: int) -> None:
        path = self._snapshots.pop(offset, None)
        if path is not None:
            self._fs.remove(path)

    def delete_snapshots_before(self, offset: int) -> None:
        for snapshot_offset in [known for known in self._snapshots if known < offset]:
            self.delete_snapshot(snapshot_offset)

    def mark_snapshot_deleted(self, offset: int) -> Path | None:
        """Rename a snapshot to `.deleted`, with its segment; its new path, for the removal later."""
        path = self._snapshots.pop(offset, None)
        if path is None or not self._fs.exists(path):
            return None
        marked = path.with_name(path.name + DELETED_SUFFIX)
        self._fs.rename(path, marked)
        return marked

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Delete snapshots that stand at no segment's base offset; one above all of them (clean shutdown) stays."""
        self._snapshots = self._find_snapshots()
        largest_base = max(segment_base_offsets, default=None)
        strays = sorted(set(self._snapshots) - set(segment_base_offsets))
        keep = strays[-1:] if strays and (largest_base is None or strays[-1] >= largest_base) else []
        for offset in strays:
            if offset not in keep:
                self.delete_snapshot(offset)

    def moved_to(self, directory: StrPath) -> None:
        """The partition directory was renamed: go on under the new name."""
        self.directory = Path(directory)
        self._snapshots = {offset: self.directory / path.name for offset, path in self._snapshots.items()}

    def _find_snapshots(self) -> dict[int, Path]:
        if not self._fs.is_dir(self.directory):
            return {}
        found: dict[int, Path] = {}
        for name in self._fs.list_dir(self.directory):
            parsed = parse_file_name(name)
            if parsed is not None and parsed[1:] == (SNAPSHOT_SUFFIX, ""):
                found[parsed[0]] = self.directory / name
        return found
