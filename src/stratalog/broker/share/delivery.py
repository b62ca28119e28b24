"""Which records of a partition a share group has been given, who has them, and which are done.

Pure: the time and the record batches of the log come in, answers and changes go out. Nothing changes until a plan is
carried out, so what the log refuses has not happened.

The records in flight are those from the start offset up to the end offset, in runs of neighbours alike. Below the start
everything is done; from the end on nothing has been handed out.

    AVAILABLE -> ACQUIRED            handed to a member, its delivery count one up, for as long as its lock lasts
    ACQUIRED  -> ACKNOWLEDGED        accepted
    ACQUIRED  -> ARCHIVED            rejected, or there is no such record (a gap)
    ACQUIRED  -> AVAILABLE           released, given up by a session that ends, or its lock is over
    ACQUIRED  -> ARCHIVED            the same after as many deliveries as there may be
    AVAILABLE -> ARCHIVED            deleted from the log

Source: `SharePartition` of Kafka 4.4.0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby

from stratalog.errors import InvalidRecordStateError, InvalidRequestError

_NOT_FOUND = "Batch record not found."


class RecordState(IntEnum):
    """The numbers are those of the records of `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_done(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AckType(IntEnum):
    """What a member says of a record; the numbers are those of the requests."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Neighbouring records alike; both offsets are in it. `member_id` and `due_ms` are of the lock."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    member_id: str = ""
    due_ms: int = 0

    def __len__(self) -> int:
        return self.last - self.first + 1

    def part(self, first: int, last: int) -> RecordRun:
        """Return what of it lies between two offsets."""
        return replace(self, first=max(first, self.first), last=min(last, self.last))

    def unlocked(self, state: RecordState) -> RecordRun:
        """Return it in a state in which no member has it."""
        return RecordRun(self.first, self.last, state, self.delivery_count)

    def given_up(self, deliveries_max: int) -> RecordRun:
        """Return it without its lock: to be handed out again, or archived when that was done too often."""
        spent = self.delivery_count >= deliveries_max
        return self.unlocked(RecordState.ARCHIVED if spent else RecordState.AVAILABLE)


@dataclass(frozen=True, slots=True)
class AckBatch:
    """What a member says of the records from `first` to `last`: one type for all of them, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """Offsets of a batch of the log; both are in it."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AcquireLimits:
    """How much one fetch may get: `records` softly (its last batch is whole) unless `is_strict`.

    A row of new records of more than `batch` is told in several pieces that end where batches of the log do.
    """

    records: int
    batch: int
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """`locks`: records in flight at most; `deliveries`: of one record; `lock_ms`: how long it stays acquired.

    `may_renew`: whether a member may have a lock last longer.
    """

    locks: int = 2_000
    deliveries: int = 5
    lock_ms: int = 30_000
    may_renew: bool = True

    @property
    def careful_from(self) -> int:
        """From how many deliveries on records come in ever smaller rows: one of them may be what harms members."""
        return max(2, (self.deliveries + 1) // 2)


@dataclass(frozen=True, slots=True)
class RecordLock:
    """Who has records, and until when."""

    member_id: str
    due_ms: int

    def on(self, run: RecordRun) -> RecordRun:
        """Return a run that is handed out once more."""
        return RecordRun(run.first, run.last, RecordState.ACQUIRED, run.delivery_count + 1, self.member_id, self.due_ms)


@dataclass(slots=True)
class _Handing:
    """One fetch on its way: what may still be handed out between two offsets, and what has been."""

    first: int
    last: int
    left: int
    lock: RecordLock
    limits: AcquireLimits
    delivery: DeliveryLimits
    acquired: list[RecordRun] = field(default_factory=list)

    def hand_out(self, run: RecordRun) -> Iterator[RecordRun]:
        """Yield a run in pieces, of which one is handed out if it may be."""
        first, last = max(run.first, self.first), min(run.last, self.last)
        if run.state is not RecordState.AVAILABLE or self.left <= 0 or first > last:
            yield run
            return
        if self.limits.is_strict:
            last = min(last, first + self.left - 1)
        is_careful = run.delivery_count >= self.delivery.careful_from
        if is_careful:
            if self.acquired:  # it comes alone
                self.left = 0
                yield run
                return
            last = min(last, first + self._careful_count(run) - 1)
        for piece in _split(run, first, last):
            if piece.first != first:
                yield piece
                continue
            taken = self.lock.on(piece)
            self.acquired.append(taken)
            self.left = 0 if is_careful else self.left - len(taken)
            yield taken

    def _careful_count(self, run: RecordRun) -> int:
        if self.delivery.deliveries > 2 and run.delivery_count == self.delivery.deliveries - 1:  # the last one
            return 1
        return max(1, len(run) >> (run.delivery_count - self.delivery.careful_from + 1))


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """A change that can be carried out. `changed` is what the state topic is to know of it."""

    runs: tuple[RecordRun, ...]
    changed: tuple[RecordRun, ...]


class PartitionDelivery:
    """The records in flight of a share group in one partition. Not thread-safe."""

    def __init__(self, start_offset: int, runs: Iterable[RecordRun] = ()) -> None:
        """Begin with `runs` of the state topic; what is missing among them was acquired, and is handed out again."""
        self.start_offset = start_offset
        self.end_offset = start_offset
        self._runs: list[RecordRun] = []
        for run in sorted(runs, key=lambda each: each.first):
            if run.last < self.end_offset:
                continue
            if run.first > self.end_offset:
                self._runs.append(RecordRun(self.end_offset, run.first - 1, RecordState.AVAILABLE, 0))
            self._runs.append(run.part(self.end_offset, run.last))
            self.end_offset = run.last + 1
        self._advance()

    # --- questions ----------------------------------------------------------------------------------------------------

    @property
    def runs(self) -> tuple[RecordRun, ...]:
        return tuple(self._runs)

    @property
    def next_fetch_offset(self) -> int:
        """Return from where to read what can be handed out."""
        available = (run.first for run in self._runs if run.state is RecordState.AVAILABLE)
        return next(available, self.end_offset)

    @property
    def done_count(self) -> int:
        """How many of the records in flight are done."""
        return sum(len(run) for run in self._runs if run.state.is_done)

    def can_acquire(self, locks: int) -> bool:
        """Whether there is anything to hand out, or room for more records in flight."""
        return self.next_fetch_offset < self.end_offset or self.end_offset - self.start_offset < locks

    @property
    def next_due_ms(self) -> int | None:
        """When the next lock is over."""
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
        """Hand out what is available among the batches that were read from `fetch_offset` on; what the member gets.

        This is not stored: after a restart these records are available again.
        """
        if not batches or batches[-1].last < self.start_offset:
            return []
        last = batches[-1].last
        room = delivery.locks - (self.end_offset - self.start_offset)
        if room <= 0:  # nothing new, but what is there may be handed out
            last = min(last, self.end_offset - 1)
            room = self.end_offset - fetch_offset
        left = min(limits.records, room)
        if left <= 0:
            return []
        self._archive_missing(fetch_offset, batches[0].first)
        first = max(batches[0].first, self.start_offset)
        lock = RecordLock(member_id, now_ms + delivery.lock_ms)
        handing = _Handing(first, last, left, lock, limits, delivery)
        self._runs = [piece for run in self._runs for piece in handing.hand_out(run)]
        if last >= self.end_offset and handing.left > 0:
            self._hand_out_new(batches, handing)
        self._advance()
        return handing.acquired

    def _archive_missing(self, fetch_offset: int, first: int) -> None:
        """Archive what the log does not have any more, as compaction took it."""
        for at in _isolate(self._runs, fetch_offset, min(first, self.end_offset) - 1):
            if self._runs[at].state is RecordState.AVAILABLE:
                self._runs[at] = self._runs[at].unlocked(RecordState.ARCHIVED)

    def _hand_out_new(self, batches: Sequence[BatchOffsets], handing: _Handing) -> None:
        """Hand out records that have not been handed out before."""
        for new in _new_ranges(batches, max(handing.first, self.end_offset), handing.left, handing.limits):
            if new.first > self.end_offset:
                self._runs.append(RecordRun(self.end_offset, new.first - 1, RecordState.ARCHIVED, 0))
            run = handing.lock.on(RecordRun(new.first, new.last, RecordState.AVAILABLE, 0))
            self._runs.append(run)
            handing.acquired.append(run)
            self.end_offset = new.last + 1

    # --- giving back --------------------------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Iterable[AckBatch], delivery: DeliveryLimits, now_ms: int
    ) -> DeliveryPlan:
        """Plan what a member says of records that it has: all of it or, with InvalidRecordStateError, nothing."""
        runs = list(self._runs)
        changed: list[RecordRun] = []
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
            for row, type_ in _rows(batch, self.start_offset):
                changed += _acknowledge_row(
                    runs, row, type_, RecordLock(member_id, now_ms + delivery.lock_ms), delivery
                )
        return DeliveryPlan(tuple(runs), tuple(changed))

    def release(self, member_id: str, delivery: DeliveryLimits) -> DeliveryPlan:
        """Plan that all records of a member can be handed out again, or are archived."""
        return self._give_up(lambda run: run.member_id == member_id, delivery)

    def expire(self, delivery: DeliveryLimits, now_ms: int) -> DeliveryPlan:
        """Plan the same for all records whose locks are over."""
        return self._give_up(lambda run: run.due_ms <= now_ms, delivery)

    def _give_up(self, is_meant: Callable[[RecordRun], bool], delivery: DeliveryLimits) -> DeliveryPlan:
        runs, changed = [], []
        for run in self._runs:
            if run.state is RecordState.ACQUIRED and is_meant(run):
                run = run.given_up(delivery.deliveries)
                changed.append(run)
            runs.append(run)
        return DeliveryPlan(tuple(runs), tuple(changed))

    def archive(self, ranges: Iterable[BatchOffsets]) -> DeliveryPlan:
        """Plan that records are archived whoever has them, such as those of aborted transactions."""
        runs = list(self._runs)
        changed: list[RecordRun] = []
        for wanted in ranges:
            for at in _isolate(runs, wanted.first, wanted.last):
                if not runs[at].state.is_done:
                    runs[at] = runs[at].unlocked(RecordState.ARCHIVED)
                    changed.append(runs[at])
        return DeliveryPlan(tuple(runs), tuple(changed))

    def carry_out(self, plan: DeliveryPlan) -> None:
        """Let a plan count, which was made of the state as it is now."""
        self._runs = list(plan.runs)
        self._advance()

    def start_at(self, offset: int) -> None:
        """Forget what is below an offset, which the log does not have any more; a lower one changes nothing."""
        if offset > self.start_offset:
            self._runs = [run.part(offset, run.last) for run in self._runs if run.last >= offset]
            self.start_offset, self.end_offset = offset, max(offset, self.end_offset)
            self._advance()

    def _advance(self) -> None:
        """Let the start offset pass what is done, and join what is done in the middle."""
        at = 0
        while at < len(self._runs) and self._runs[at].state.is_done:
            at += 1
        del self._runs[:at]
        self.start_offset = self._runs[0].first if self._runs else self.end_offset


# --- runs -------------------------------------------------------------------------------------------------------------


def _split(run: RecordRun, first: int, last: int) -> Iterator[RecordRun]:
    """Yield a run in pieces of which one is what lies between two offsets."""
    if run.first < first:
        yield run.part(run.first, first - 1)
    yield run.part(first, last)
    if last < run.last:
        yield run.part(last + 1, run.last)


def _isolate(runs: list[RecordRun], first: int, last: int) -> range:
    """Split runs so that some cover exactly what there is between two offsets; the places of these."""
    if not runs or first > last:
        return range(0)
    begin = max(bisect_right(runs, first, key=lambda run: run.first) - 1, 0)
    end = bisect_right(runs, last, key=lambda run: run.first)
    pieces = [
        piece
        for run in runs[begin:end]
        for piece in _split(run, max(run.first, first), min(run.last, last))
        if piece.first <= piece.last
    ]
    runs[begin:end] = pieces
    within = [at for at, run in enumerate(pieces, begin) if run.first >= first and run.last <= last]
    return range(within[0], within[-1] + 1) if within else range(0)


def _rows(batch: AckBatch, start_offset: int) -> Iterator[tuple[BatchOffsets, AckType]]:
    """Yield rows of records of which the same is said, without what is done."""
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


def _acknowledge_row(
    runs: list[RecordRun], row: BatchOffsets, type_: AckType, lock: RecordLock, delivery: DeliveryLimits
) -> list[RecordRun]:
    """Change the runs of a row; those of them that are to be stored. `lock` is what a renewed one becomes."""
    changed = []
    for at in _isolate(runs, row.first, row.last):
        run = runs[at]
        if run.state is not RecordState.ACQUIRED:
            raise InvalidRecordStateError("The batch cannot be acknowledged. The batch is not in the acquired state.")
        if run.member_id != lock.member_id:
            raise InvalidRecordStateError("Member is not the owner of batch record")
        if type_ is AckType.RENEW:
            if not delivery.may_renew:
                raise InvalidRecordStateError("Renewing acquisition locks is not enabled for the group.")
            runs[at] = replace(run, due_ms=lock.due_ms)
            continue
        if type_ is AckType.RELEASE:
            runs[at] = run.given_up(delivery.deliveries)
        else:
            runs[at] = run.unlocked(RecordState.ACKNOWLEDGED if type_ is AckType.ACCEPT else RecordState.ARCHIVED)
        changed.append(runs[at])
    return changed


def _new_ranges(
    batches: Sequence[BatchOffsets], first: int, room: int, limits: AcquireLimits
) -> Iterator[BatchOffsets]:
    """Yield the new records to hand out, from `first` on, in pieces."""
    fresh = [batch for batch in batches if batch.last >= first]
    begin = max(first, fresh[0].first)
    end = begin + room - 1
    last = begin
    for batch in fresh:
        if batch.first > end:
            break
        last = min(batch.last, end) if limits.is_strict else batch.last
        if last - begin + 1 >= limits.batch:
            yield BatchOffsets(begin, last)
            begin = last + 1
    if begin <= last:
        yield BatchOffsets(begin, last)
