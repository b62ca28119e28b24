"""Select the records that one fetch acquires. Pure.

Records that are delivered again keep the batches of their first delivery. A batch is delivered as a whole, as far as it
was read, so the last one may exceed a soft limit. Records with many deliveries come in ever smaller batches and alone:
one of them may crash its consumer.
Source: `SharePartition.acquire`, `acquireSubsetBatchRecords` and `acquireNewBatchRecords` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from stratalog.broker.share.record_runs import (
    AcquireLimits,
    BatchOffsets,
    DeliveryLimits,
    RecordLock,
    RecordRun,
    RecordState,
    split_run,
)


@dataclass(slots=True)
class HandingOut:
    """One fetch in progress: the batches read, their range, how many records are left, and those acquired so far."""

    batches: Sequence[BatchOffsets]
    within: BatchOffsets
    left: int
    lock: RecordLock
    limits: AcquireLimits
    delivery: DeliveryLimits
    acquired: list[RecordRun] = field(default_factory=list)

    def known(self, runs: Iterable[RecordRun]) -> Iterator[RecordRun]:
        """Yield all records in flight, some of them acquired."""
        for _, found in groupby(runs, key=lambda run: run.whole):
            batch = list(found)
            if self.left > 0 and any(self._is_ready(run) for run in batch):
                yield from self._hand_out(batch)
            else:
                yield from batch

    def _is_ready(self, run: RecordRun) -> bool:
        return run.is_available and run.first <= self.within.last and run.last >= self.within.first

    def _hand_out(self, batch: list[RecordRun]) -> Iterator[RecordRun]:
        if batch[0].delivery_count == 0 and not batch[0].is_single:  # not delivered before, as far as is known
            yield from self._hand_out_gap(batch[0])
            return
        is_careful = any(run.delivery_count >= self.delivery.careful_from for run in batch if self._is_ready(run))
        if is_careful and self.acquired:  # they are delivered alone
            self.left = 0
            yield from batch
            return
        row = _Row(self, len(batch[0].whole))
        pieces = [piece for run in batch for piece in row.hand_out(run)]
        self.acquired += _joined(row.taken)
        self.left = 0 if is_careful else self.left - row.size
        is_single = batch[0].is_single or len(pieces) > 1
        yield from (replace(piece, is_single=True) for piece in pieces) if is_single else pieces

    def _hand_out_gap(self, run: RecordRun) -> Iterator[RecordRun]:
        """Deliver records between known ones as new ones, in separate batches."""
        first, last = max(run.first, self.within.first), min(run.last, self.within.last)
        for piece in split_run(run, first, last):
            if piece.first != first:
                yield replace(piece, batch=None)
                continue
            end = first
            for taken in self._pieces(first, last):
                yield taken
                end = taken.last + 1
            if end <= last:
                yield RecordRun(end, last, RecordState.AVAILABLE, 0)

    def begin_of_new(self, first: int) -> int:
        """Return the first offset from `first` on in the batches."""
        return max(first, next(batch.first for batch in self.batches if batch.last >= first))

    def new(self, begin: int, end_offset: int) -> Iterator[RecordRun]:
        """Yield new records, preceded by a gap if the known ones end earlier."""
        if begin > end_offset:
            yield RecordRun(end_offset, begin - 1, RecordState.ARCHIVED, 0)
        yield from self._pieces(begin, self.within.last)

    def _pieces(self, first: int, last: int) -> Iterator[RecordRun]:
        """Yield acquired records from an offset to the end of the batch that reaches the limit."""
        if last - first + 1 > self.left:
            last = min(last, self._end_of_batch(first + self.left - 1))
        if self.limits.is_strict:
            yield from self._strict(BatchOffsets(first, last))
            return
        begin = first
        if last - first + 1 > self.limits.batch:
            for batch in self.batches:
                if batch.first > last:
                    break
                if batch.first - begin >= self.limits.batch and batch.first > begin:
                    yield self._take(BatchOffsets(begin, batch.first - 1))
                    begin = batch.first
        yield self._take(BatchOffsets(begin, last))

    def _end_of_batch(self, offset: int) -> int:
        return next((batch.last for batch in self.batches if batch.first <= offset <= batch.last), offset)

    def _strict(self, row: BatchOffsets) -> Iterator[RecordRun]:
        """Yield a range of which only as many as allowed are acquired; the others are in flight and available."""
        taken = min(row.last, row.first + self.left - 1)
        is_single = taken < row.last
        yield self._take(BatchOffsets(row.first, taken), row, is_single=is_single)
        if is_single:
            yield RecordRun(taken + 1, row.last, RecordState.AVAILABLE, 0, batch=row, is_single=True)

    def _take(self, row: BatchOffsets, batch: BatchOffsets | None = None, *, is_single: bool = False) -> RecordRun:
        run = RecordRun(
            row.first, row.last, RecordState.AVAILABLE, 0, batch=row if batch is None else batch, is_single=is_single
        )
        taken = self.lock.on(run)
        self.acquired.append(taken)
        self.left -= len(taken)
        return taken


@dataclass(slots=True)
class _Row:
    """Acquires records of one batch of `batch_size` records."""

    handing: HandingOut
    batch_size: int
    taken: list[RecordRun] = field(default_factory=list)
    size: int = 0
    is_over: bool = False
    #: Limit once there was a record with many deliveries.
    careful_max: int | None = None

    def hand_out(self, run: RecordRun) -> Iterator[RecordRun]:
        """Split a run around the part that is acquired, if any."""
        within = self.handing.within
        first, last = max(run.first, within.first), min(run.last, within.last)
        if not run.is_available or self.is_over or first > last:
            yield run
            return
        count = min(self._room(run), last - first + 1)
        if count <= 0:
            self.is_over = True
            yield run
            return
        for piece in split_run(run, first, first + count - 1):
            if piece.first != first:
                yield piece
                continue
            taken = self.handing.lock.on(piece)
            self.taken.append(taken)
            self.size += count
            self.is_over = self._is_full(taken)
            yield taken

    def _room(self, run: RecordRun) -> int:
        """Return how many records of a run may be acquired."""
        delivery, limits = self.handing.delivery, self.handing.limits
        room = self.handing.left - self.size if limits.is_strict else len(run)
        if delivery.deliveries > 2 and run.delivery_count == delivery.deliveries - 1:  # the last delivery is alone
            return 0 if self.size else min(room, 1)
        if run.delivery_count >= delivery.careful_from and self.careful_max is None:
            self.careful_max = max(1, self.batch_size >> (run.delivery_count - delivery.careful_from + 1))
        if self.careful_max is not None and self.size < self.careful_max:
            room = min(room, self.careful_max - self.size)
        return room

    def _is_full(self, taken: RecordRun) -> bool:
        delivery, handing = self.handing.delivery, self.handing
        return (
            (delivery.deliveries > 2 and taken.delivery_count == delivery.deliveries)
            or (handing.limits.is_strict and self.size == handing.left)
            or self.size == self.careful_max
        )


def _joined(taken: Iterable[RecordRun]) -> list[RecordRun]:
    """Return acquired records of one batch, with equal neighbours joined."""
    joined: list[RecordRun] = []
    for run in taken:
        if joined and joined[-1].last + 1 == run.first and joined[-1].delivery_count == run.delivery_count:
            joined[-1] = replace(joined[-1], last=run.last)
        else:
            joined.append(run)
    return joined
