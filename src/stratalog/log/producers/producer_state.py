"""The producer state of a partition: finds duplicates, fences zombies and bounds the last stable offset.

For each producer id: its epoch, its last five batches, and the offset where its open transaction began
(`producer_entry`). The state as of an offset is kept in `.snapshot` files and rebuilt from the batches behind it. This
is Kafka's `ProducerStateManager`.

An append takes two steps, so that a refused batch leaves no trace: `prepare` gives a `ProducerUpdates`, to which the
batches of one append are added (this validates them); `commit` applies it once they are in the log.
Not thread-safe: the partition's lock is held.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from typing_extensions import Buffer

from stratalog.errors import CorruptSnapshotError, InvalidProducerEpochError
from stratalog.log.format import producer_snapshot
from stratalog.log.index import AbortedTransaction
from stratalog.log.producers.packed_producers import MANY_PRODUCERS, PackedProducers
from stratalog.log.producers.producer_entry import ProducerEntry
from stratalog.log.producers.producer_snapshots import SnapshotDirectory
from stratalog.log.producers.producer_updates import (
    AppendOrigin,
    DuplicateOf,
    ProducerUpdates,
)
from stratalog.log.producers.producer_verification import OpenVerifications, VerificationGuard
from stratalog.records import NO_TIMESTAMP, RecordBatch
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, StrPath

logger = logging.getLogger(__name__)

EXPIRATION_MS_DEFAULT: Final = 86_400_000
#: An expiration: no producer is forgotten for its age.
NEVER: Final = 1 << 62
TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 900_000
#: A transaction counts as hanging this long after the largest timeout that it may have.
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000


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
    ) -> None:
        self.name = str(topic_partition)
        self.expiration_ms = expiration_ms
        self.max_transaction_timeout_ms = TRANSACTION_TIMEOUT_MS_DEFAULT
        #: Whether the first batch of a transaction must bring the guard of its verification.
        self.verification_required = False
        self.verifications = OpenVerifications()
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        self._clock = clock
        self._fs = fs
        self._producers: dict[int, ProducerEntry] = {}
        #: Their entries in a snapshot, once there are many of them.
        self._packed: PackedProducers | None = None
        #: Buckets that Kafka's HashMap has by now: it grows at 3/4 and never shrinks.
        self._hash_table_size = 16
        #: First offset -> producer id of the open transactions, ascending: they begin as the log grows.
        self._ongoing: dict[int, int] = {}
        #: First offset -> offset of the marker, for transactions whose marker is not below the high watermark yet.
        self._unreplicated: dict[int, int] = {}
        self.snapshots = SnapshotDirectory(directory, fs)

    # --- what is known ------------------------------------------------------------------------------------------

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is open or whose marker is above the high watermark."""
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
        """The last timestamp of the producer with the oldest open transaction; -1 without one."""
        for producer_id in self._ongoing.values():
            producer = self._producers.get(producer_id)
            return producer.last_timestamp_ms if producer else NO_TIMESTAMP
        return NO_TIMESTAMP

    def has_late_transaction(self, now_ms: int) -> bool:
        """Return whether the oldest open transaction should have been ended long ago."""
        last_ms = self.oldest_transaction_timestamp_ms
        return last_ms > 0 and now_ms - last_ms > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    # --- appends ------------------------------------------------------------------------------------------------

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has an open transaction here, of this epoch."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch == epoch and known.current_txn_first_offset is not None

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """Before the coordinator is asked whether a transaction has this partition; None if it is known to have it.

        Pass the guard to `prepare` with the first batch. Raises InvalidProducerEpochError for an old epoch.
        """
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise InvalidProducerEpochError(
                f"{self.name}: epoch {epoch} of producer {producer_id} is smaller than the last seen epoch "
                f"{known.epoch}"
            )
        if self.has_ongoing_transaction(producer_id, epoch):
            return None
        return self.verifications.start(
            producer_id,
            sequence,
            epoch,
            supports_epoch_bump=supports_epoch_bump,
            now_ms=self._clock.now_ms(),
        ).guard

    def prepare(self, origin: AppendOrigin = "client", *, guard: VerificationGuard | None = None) -> ProducerUpdates:
        """Begin an append; add its batches to the result, then `commit` it.

        `guard` is that of a verification that has succeeded.
        """
        return ProducerUpdates(
            self._producers,
            origin,
            self.name,
            verifications=self.verifications,
            guard=guard,
            guard_required=self.verification_required,
        )

    def commit(self, updates: ProducerUpdates) -> list[AbortedTransaction]:
        """Apply an append that is in the log now; gives what `aborted_by` gave before.

        The caller moves `map_end_offset` on.
        """
        for producer_id, batches in updates.following.items():
            producer = self._producers[producer_id]
            producer.batches.extend(batches)
            producer.last_timestamp_ms = batches[-1].timestamp_ms
            if self._packed is not None:
                self._packed.changed(producer_id)
        if not updates.pending:
            return []
        aborted = self.aborted_by(updates)
        for producer_id, pending in updates.pending.items():
            current = self._producers.get(producer_id)
            if current is None:
                self._add(pending.updated)
            else:
                current.merge(pending.updated)
                if self._packed is not None:
                    self._packed.changed(producer_id)
            for first_offset in pending.started:
                self._ongoing[first_offset] = producer_id
            if pending.ends_verification:
                self.verifications.pop(producer_id, None)
        for completed in updates.completed:
            self._ongoing.pop(completed.first_offset, None)
            self._unreplicated[completed.first_offset] = completed.last_offset
        return aborted

    def aborted_by(self, updates: ProducerUpdates) -> list[AbortedTransaction]:
        """Return the new entries of the transaction index of the append's segment. Changes nothing."""
        if not updates.completed:
            return []
        ongoing = dict(self._ongoing)
        for producer_id, pending in updates.pending.items():
            ongoing.update(dict.fromkeys(pending.started, producer_id))
        aborted: list[AbortedTransaction] = []
        for completed in updates.completed:
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
        if self._packed is not None:
            self._packed.changed(producer.producer_id)
        elif len(self._producers) >= MANY_PRODUCERS:
            self._packed = PackedProducers(self._producers)

    def _drop_replicated(self, offset: int) -> None:
        for first_offset in [first for first, marker in self._unreplicated.items() if marker < offset]:
            del self._unreplicated[first_offset]

    # --- ageing, truncation ---------------------------------------------------------------------------------------

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that were silent for `expiration_ms` and have no open transaction; how many.

        Verifications that are as old go too.
        """
        expired = [pid for pid, producer in self._producers.items() if self._is_expired(producer, now_ms)]
        for producer_id in expired:
            del self._producers[producer_id]
        if self._packed is not None:
            self._packed.forgotten(expired)
        self.verifications.remove_expired(now_ms, self.expiration_ms)
        return len(expired)

    def _is_expired(self, producer: ProducerEntry, now_ms: int) -> bool:
        return producer.current_txn_first_offset is None and now_ms - producer.last_timestamp_ms >= self.expiration_ms

    def on_log_start_offset(self, log_start_offset: int) -> None:
        self._drop_replicated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int | None = None) -> None:
        """Take over the offsets that the log now spans.

        Drop snapshots outside, and load the newest one unless we stand at the end.

        `map_end_offset` then says from where on the caller has to feed batches to `update`. Damaged snapshots are
        removed with a warning.
        """
        self.snapshots.delete_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset(log_start_offset)
            return
        self._clear()
        self._load(log_start_offset, self._clock.now_ms() if now_ms is None else now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, snapshots too."""
        self._clear()
        self.snapshots.delete_all()
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def begin_with(self, offset: int, snapshot: Buffer) -> None:
        """Forget everything but what `snapshot`, that of another replica, says of the producers before `offset`."""
        self.truncate_fully_and_start_at(offset)
        producer_snapshot.write_encoded(self.snapshots.path_for(offset), snapshot, self._fs)
        self.snapshots.add(offset, synced=True)
        self._load(offset, self._clock.now_ms())

    def _clear(self) -> None:
        self._producers.clear()
        self._packed = None
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load(self, log_start_offset: int, now_ms: int) -> None:
        while (latest := self.snapshots.latest_offset) is not None:
            try:
                entries = producer_snapshot.read(self.snapshots.path_for(latest), self._fs)
            except (CorruptSnapshotError, FileNotFoundError) as error:
                logger.warning("%s: removing a producer snapshot that cannot be used: %s", self.name, error)
                self.snapshots.delete(latest)
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

    def take_snapshot(self, offset: int | None = None, *, sync: bool = True) -> Path | None:
        """Write the state as of `map_end_offset`, unless it did not move since the last one.

        With `offset`, `map_end_offset` is set to that first. Without `sync`, the next flush makes it durable
        (`snapshots.unsynced`).
        """
        if offset is not None:
            self.map_end_offset = offset
        end = self.map_end_offset
        if end <= self._last_snapshot_offset:
            return None
        if self._packed is None:
            order = producer_snapshot.hash_order(self._producers, self._hash_table_size)
            data = producer_snapshot.encode_packed([self._producers[pid].packed() for pid in order])
        else:
            data = self._packed.snapshot(self._hash_table_size)
        path = self.snapshots.path_for(end)
        producer_snapshot.write_encoded(path, data, self._fs, sync=sync)
        self.snapshots.add(end, synced=sync)
        self._last_snapshot_offset = end
        return path
