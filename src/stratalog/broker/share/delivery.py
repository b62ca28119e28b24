"""The delivery state of the records of a partition in a share group.

Pure: time and record batches come in, answers and changes go out. A plan changes nothing until it is carried out. An
acknowledgement is pending until the coordinator has stored it: `begin`, then `finish` or `take_back`.

The records in flight are those from the start offset to the end offset, in runs of neighbours with the same state. All
records below the start are done; none from the end on has been delivered.

    AVAILABLE -> ACQUIRED            delivered to a member, its delivery count incremented, until its lock expires
    ACQUIRED  -> ACKNOWLEDGED        accepted
    ACQUIRED  -> ARCHIVED            rejected, or no such record (a gap)
    ACQUIRED  -> AVAILABLE           released, its session closed, or its lock expired
    ACQUIRED  -> ARCHIVED            the same, after the maximum number of deliveries
    ACQUIRED  -> ARCHIVING           instead of ARCHIVED with a dead-letter topic: the letter is written first
    ARCHIVING -> ARCHIVED            its letter is written, or cannot be
    AVAILABLE -> ARCHIVED            deleted from the log

Source: `SharePartition` of Kafka 4.4.0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from stratalog.broker.share.handing_out import HandingOut
from stratalog.broker.share.record_runs import (
    AckBatch,
    AckType,
    AcquireLimits,
    BatchOffsets,
    DeliveryLimits,
    RecordLock,
    RecordRun,
    RecordState,
    isolated,
)
from stratalog.errors import InvalidRecordStateError, InvalidRequestError

_NOT_FOUND = "Batch record not found."
#: By whether records are tracked one by one.
_NOT_ACQUIRED = (
    "The batch cannot be acknowledged. The batch is not in the acquired state.",
    "The offset cannot be acknowledged. The offset is not acquired.",
)
_NOT_OWNED = ("Member is not the owner of batch record", "Member is not the owner of offset")


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """A change that can be carried out. `changed` is the part to store in the state topic.

    `rejected` has the first offsets of rejected records. `number` identifies its runs while they are pending, 0 if they
    never are.
    """

    runs: Sequence[RecordRun]
    changed: Sequence[RecordRun]
    rejected: frozenset[int] = frozenset()
    number: int = 0

    @property
    def done_count(self) -> int:
        """Number of records in flight that are done after this change."""
        return sum(len(run) for run in self.runs if run.state.is_done)


class PartitionDelivery:
    """The records in flight of a share group in one partition. Not thread-safe."""

    def __init__(self, start_offset: int, runs: Iterable[RecordRun] = ()) -> None:
        """Start with `runs` of the state topic; records missing in between were acquired, and become available."""
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._runs: list[RecordRun] = []
        self._changes = 0
        for run in sorted(runs, key=lambda each: each.first):
            if run.last < self.end_offset:
                continue
            if run.first > self.end_offset:
                self._runs.append(RecordRun(self.end_offset, run.first - 1, RecordState.AVAILABLE, 0))
            self._runs.append(run.part(self.end_offset, run.last))
            self.end_offset = run.last + 1
        self.advance()

    # --- questions ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of records in flight."""
        return self.end_offset - self.start_offset if self._runs else 0

    @property
    def runs(self) -> tuple[RecordRun, ...]:
        return tuple(self._runs)

    @property
    def next_fetch_offset(self) -> int:
        """The offset to read from for records that can be delivered."""
        available = (run.first for run in self._runs if run.is_available)
        return next(available, self.end_offset)

    @property
    def done_count(self) -> int:
        """Number of records in flight that are done."""
        return sum(len(run) for run in self._runs if run.state.is_done)

    def can_acquire(self, locks: int) -> bool:
        """Return whether records are available, or there is room for more in flight."""
        return self.next_fetch_offset < self.end_offset or self.end_offset - self.start_offset < locks

    def available(self, first: int, last: int) -> int:
        """Return how many records between two offsets can be delivered, including new ones."""
        known = sum(
            min(run.last, last) - max(run.first, first) + 1
            for run in self._runs
            if run.is_available and run.first <= last and run.last >= first
        )
        return known + max(last - max(first, self.end_offset) + 1, 0)

    @property
    def next_due_ms(self) -> int | None:
        """The time at which the next lock expires."""
        return min((run.due_ms for run in self._runs if run.state is RecordState.ACQUIRED), default=None)

    # --- acquiring ----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        batches: Sequence[BatchOffsets],
        limits: AcquireLimits,
        delivery: DeliveryLimits,
        now_ms: int,
    ) -> list[RecordRun]:
        """Deliver available records of the batches that were read from `fetch_offset` on; return the acquired ones.

        This is not stored: after a restart these records are available again.
        """
        if not batches or batches[-1].last < self.start_offset:
            return []
        last = batches[-1].last
        room = delivery.locks - (self.end_offset - self.start_offset)
        if room <= 0:  # nothing new, but records in flight may be available
            last = min(last, self.end_offset - 1)
            room = self.end_offset - fetch_offset
        left = min(limits.records, room)
        if left <= 0:
            return []
        self._archive_missing(fetch_offset, batches[0].first)
        lock = RecordLock(member_id, now_ms + delivery.lock_ms)
        first = max(batches[0].first, self.start_offset)
        handing = HandingOut(batches, BatchOffsets(first, last), left, lock, limits, delivery)
        self._runs = list(handing.known(self._runs))
        if last >= self.end_offset and handing.left > 0:
            begin = handing.begin_of_new(max(first, self.end_offset))
            if not self._runs:
                self.start_offset = self.end_offset = begin
            self._runs += handing.new(begin, self.end_offset)
            self.end_offset = self._runs[-1].last + 1
        return handing.acquired

    def _archive_missing(self, fetch_offset: int, first: int) -> None:
        """Archive records that compaction has removed from the log."""
        for at in isolated(self._runs, fetch_offset, min(first, self.end_offset) - 1):
            if self._runs[at].is_available:
                self._runs[at] = self._runs[at].unlocked(RecordState.ARCHIVED)

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Iterable[AckBatch], delivery: DeliveryLimits, now_ms: int
    ) -> DeliveryPlan:
        """Plan a member's acknowledgements; all or, with InvalidRecordStateError, none."""
        saying = _Saying(list(self._runs), RecordLock(member_id, now_ms + delivery.lock_ms), delivery, self._number())
        for batch in batches:
            if batch.first > batch.last or len(batch.types) not in (1, batch.last - batch.first + 1):
                raise InvalidRequestError("The acknowledgement batch is not valid.")
            if batch.last < self.start_offset:
                continue
            if not self._runs:
                raise InvalidRecordStateError(f"{_NOT_FOUND} The request batch offsets are not found in the cache.")
            if batch.first >= self.end_offset:
                raise InvalidRequestError(f"{_NOT_FOUND} The first offset in request is past acquired records.")
            if batch.last >= self.end_offset:
                raise InvalidRequestError(f"{_NOT_FOUND} The last offset in request is past acquired records.")
            saying.take(_rows(batch, self.start_offset))
        return saying.plan()

    def _number(self) -> int:
        self._changes += 1
        return self._changes

    def release(self, member_id: str, delivery: DeliveryLimits) -> DeliveryPlan:
        """Plan to make all records of a member available again, or to archive them."""
        return self._give_up(lambda run: run.member_id == member_id, delivery, self._number())

    def expire(self, delivery: DeliveryLimits, now_ms: int) -> DeliveryPlan:
        """Plan the same for records whose locks have expired. It takes effect at once: it is never pending."""
        return self._give_up(lambda run: run.due_ms <= now_ms, delivery, 0)

    def _give_up(self, is_meant: Callable[[RecordRun], bool], delivery: DeliveryLimits, number: int) -> DeliveryPlan:
        runs, changed = [], []
        for run in self._runs:
            if run.state is RecordState.ACQUIRED and is_meant(run):
                state = run.state_given_up(delivery)
                run = run.changing(state, number) if number else run.unlocked(state)
                changed.append(run)
            runs.append(run)
        return DeliveryPlan(runs, changed, number=number)

    def archive(self, ranges: Iterable[BatchOffsets]) -> DeliveryPlan:
        """Plan to archive records even if they are acquired, such as those of aborted transactions."""
        runs = list(self._runs)
        changed: list[RecordRun] = []
        for wanted in ranges:
            for at in isolated(runs, wanted.first, wanted.last):
                if not runs[at].state.is_done:
                    runs[at] = runs[at].unlocked(RecordState.ARCHIVED)
                    changed.append(runs[at])
        return DeliveryPlan(runs, changed)

    def archive_dead(self, ranges: Iterable[BatchOffsets]) -> DeliveryPlan:
        """Plan to archive records whose dead letters are written."""
        runs = list(self._runs)
        changed: list[RecordRun] = []
        for told in ranges:
            for at in isolated(runs, told.first, told.last):
                if runs[at].state is RecordState.ARCHIVING:
                    runs[at] = runs[at].unlocked(RecordState.ARCHIVED)
                    changed.append(runs[at])
        return DeliveryPlan(runs, changed)

    def carry_out(self, plan: DeliveryPlan, *, moves_start: bool = True) -> None:
        """Apply a plan of the current state.

        `moves_start` moves the start offset past records that are done; it is for changes that the state topic has
        stored.
        """
        self.begin(plan)
        self.finish(plan, moves_start=moves_start)

    def begin(self, plan: DeliveryPlan) -> None:
        """Mark the runs of a plan of the current state as pending."""
        self._runs = list(plan.runs)

    def finish(self, plan: DeliveryPlan, *, moves_start: bool = True) -> None:
        """Apply a plan that was begun. Other changes may have begun or ended since."""
        number = plan.number
        if number:
            self._runs = [run.changed() if run.change == number else run for run in self._runs]
        if moves_start:
            self.advance()

    def take_back(self, plan: DeliveryPlan, delivery: DeliveryLimits, now_ms: int) -> None:
        """Undo a plan that was begun and that the coordinator refused, except for locks that have expired since."""
        number = plan.number
        self._runs = [run.reverted(delivery, now_ms) if run.change == number else run for run in self._runs]

    def start_at(self, offset: int) -> None:
        """Drop records below an offset, which the log has deleted; a lower offset changes nothing."""
        if offset > self.start_offset:
            self._runs = [run.part(offset, run.last) for run in self._runs if run.last >= offset]
            self.start_offset, self.end_offset = offset, max(offset, self.end_offset)
            self.advance()

    def advance(self) -> None:
        """Move the start offset past records that are done."""
        at = 0
        while at < len(self._runs) and self._runs[at].is_over:
            at += 1
        del self._runs[:at]
        self.start_offset = self._runs[0].first if self._runs else self.end_offset


def _rows(batch: AckBatch, start_offset: int) -> Iterator[tuple[BatchOffsets, AckType]]:
    """Yield ranges with the same acknowledgement type, without those below the start."""
    if len(batch.types) == 1:
        yield BatchOffsets(max(batch.first, start_offset), batch.last), _ack_type(batch.types[0])
        return
    offset = batch.first
    for number, row in groupby(batch.types):
        first, offset = offset, offset + sum(1 for _ in row)
        if offset > start_offset:
            yield BatchOffsets(max(first, start_offset), offset - 1), _ack_type(number)


def _ack_type(number: int) -> AckType:
    try:
        return AckType(number)
    except ValueError:
        raise InvalidRequestError(f"Unknown acknowledge type id: {number}") from None


class _Saying:
    """Applies a member's acknowledgements, range by range, in one pass over the runs of each batch."""

    def __init__(self, runs: list[RecordRun], lock: RecordLock, delivery: DeliveryLimits, number: int) -> None:
        """`lock` replaces a renewed one."""
        self._runs = runs
        self._lock = lock
        self._delivery = delivery
        self._number = number
        self._dead = delivery.state_of_dead
        self._before = lock
        self._changed: list[RecordRun] = []
        self._rejected: list[int] = []

    def plan(self) -> DeliveryPlan:
        return DeliveryPlan(self._runs, self._changed, frozenset(self._rejected), self._number)

    def take(self, rows: Iterable[tuple[BatchOffsets, AckType]]) -> None:
        """Apply neighbouring ranges of records in flight."""
        runs = self._runs
        begin = at = -1
        run: RecordRun | None = None
        cursor, is_cut = 0, False  # first unacknowledged offset of the run, and whether it is within it
        pieces: list[RecordRun] = []
        for row, type_ in rows:
            if begin < 0:
                begin = at = max(bisect_right(runs, row.first, key=lambda run: run.first) - 1, 0)
            is_split = False
            while cursor <= row.last:
                if run is None:
                    run, is_cut = runs[at], False
                    at += 1
                    cursor = run.first
                    if cursor < row.first:
                        pieces.append(_piece(run, cursor, row.first - 1, is_single=True))
                        cursor, is_cut, is_split = row.first, True, True
                if cursor == row.first:
                    is_split = is_split or self._ends_within(row.last, run, at)
                last = min(run.last, row.last)
                pieces.append(self._said(run, cursor, last, type_, is_single=is_split or is_cut or run.is_single))
                cursor, is_cut = last + 1, True
                if cursor > run.last:
                    run = None
        if run is not None:
            pieces.append(_piece(run, cursor, run.last, is_single=True))
        if begin >= 0:
            runs[begin:at] = pieces

    def _ends_within(self, last: int, run: RecordRun, at: int) -> bool:
        """Return whether a range ends within a run, starting from `run`; `at` is the index of the run after it."""
        while run.last < last:
            run = self._runs[at]
            at += 1
        return run.last > last

    def _said(self, run: RecordRun, first: int, last: int, type_: AckType, *, is_single: bool) -> RecordRun:
        """Return acknowledged records of a run in their new state."""
        if run.state is not RecordState.ACQUIRED:
            raise InvalidRecordStateError(_NOT_ACQUIRED[is_single])
        if run.member_id != self._lock.member_id:
            raise InvalidRecordStateError(_NOT_OWNED[is_single])
        if type_ is AckType.RENEW:
            if not self._delivery.may_renew:
                raise InvalidRecordStateError("Renewing acquisition locks is not enabled for the group.")
            return replace(_piece(run, first, last, is_single=is_single), due_ms=self._lock.due_ms)
        if type_ is AckType.RELEASE:
            state = run.state_given_up(self._delivery)
        elif type_ is AckType.REJECT:
            state = self._dead
            self._rejected.append(first)
        else:
            state = RecordState.ACKNOWLEDGED if type_ is AckType.ACCEPT else RecordState.ARCHIVED
        if self._before.due_ms != run.due_ms:
            self._before = RecordLock(run.member_id, run.due_ms)
        said = RecordRun(
            first=first,
            last=last,
            state=state,
            delivery_count=run.delivery_count,
            batch=run.whole,
            is_single=is_single,
            change=self._number,
            before=self._before,
        )
        self._changed.append(said)
        return said


def _piece(run: RecordRun, first: int, last: int, *, is_single: bool) -> RecordRun:
    """Return the part of a run between two offsets within it."""
    if first == run.first and last == run.last and is_single == run.is_single:
        return run
    return RecordRun(
        first=first,
        last=last,
        state=run.state,
        delivery_count=run.delivery_count,
        member_id=run.member_id,
        due_ms=run.due_ms,
        batch=run.whole,
        is_single=is_single,
        change=run.change,
        before=run.before,
    )
