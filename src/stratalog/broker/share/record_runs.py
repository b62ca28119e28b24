"""Runs of neighbouring records with the same delivery state, and acknowledgements. Pure values."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum


class RecordState(IntEnum):
    """The numbers are those in records of `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_done(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AckType(IntEnum):
    """The type of an acknowledgement; the numbers are those of the requests."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """The first and last offset of a batch, inclusive."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Neighbouring records with the same state; both offsets are inclusive. `member_id` and `due_ms` are of the lock.

    `batch` is the range of their first delivery. While all of it has the same state it is tracked as one; after that,
    `is_single` means that each record is tracked by itself.

    `change` is the number of a change that the coordinator has not stored yet, 0 for none. Until it is stored, the
    records are not delivered; `before` is the lock to restore if the coordinator refuses.
    """

    first: int
    last: int
    state: RecordState
    delivery_count: int
    member_id: str = ""
    due_ms: int = 0
    batch: BatchOffsets | None = field(default=None, compare=False)
    is_single: bool = field(default=False, compare=False)
    change: int = field(default=0, compare=False)
    before: RecordLock | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def whole(self) -> BatchOffsets:
        return self.batch or BatchOffsets(self.first, self.last)

    @property
    def is_available(self) -> bool:
        """Whether it can be delivered."""
        return self.state is RecordState.AVAILABLE and not self.change

    @property
    def is_over(self) -> bool:
        """Whether it is done, and the coordinator has stored that."""
        return self.state.is_done and not self.change

    def part(self, first: int, last: int) -> RecordRun:
        """Return the part between two offsets."""
        return replace(self, first=max(first, self.first), last=min(last, self.last), batch=self.whole)

    def without(self, ranges: Iterable[BatchOffsets]) -> Iterator[RecordRun]:
        """Yield the parts outside of ascending ranges."""
        first = self.first
        for gone in ranges:
            if gone.last < first or gone.first > self.last:
                continue
            if first < gone.first:
                yield self.part(first, gone.first - 1)
            first = gone.last + 1
        if first <= self.last:
            yield self.part(first, self.last)

    def unlocked(self, state: RecordState) -> RecordRun:
        """Return it in a state without a lock and without a pending change."""
        return self._with(state)

    def _with(self, state: RecordState, change: int = 0, before: RecordLock | None = None) -> RecordRun:
        return RecordRun(
            first=self.first,
            last=self.last,
            state=state,
            delivery_count=self.delivery_count,
            batch=self.batch,
            is_single=self.is_single,
            change=change,
            before=before,
        )

    def changing(self, state: RecordState, change: int) -> RecordRun:
        """Return it with a pending change to a state without a lock."""
        return self._with(state, change, RecordLock(self.member_id, self.due_ms))

    def changed(self) -> RecordRun:
        """Return it after the coordinator has stored its change."""
        return self._with(self.state)

    def reverted(self, limits: DeliveryLimits, now_ms: int) -> RecordRun:
        """Return it as before a change that the coordinator has refused, unless the lock has expired since."""
        lock = self.before
        if lock is None or lock.due_ms <= now_ms:
            spent = self.delivery_count >= limits.deliveries
            return self._with(RecordState.ARCHIVED if spent else RecordState.AVAILABLE)
        return replace(
            self, state=RecordState.ACQUIRED, member_id=lock.member_id, due_ms=lock.due_ms, change=0, before=None
        )

    def state_given_up(self, limits: DeliveryLimits) -> RecordState:
        """Return its state after the lock: available, or dead after the maximum number of deliveries."""
        return limits.state_of_dead if self.delivery_count >= limits.deliveries else RecordState.AVAILABLE


@dataclass(frozen=True, slots=True)
class AckBatch:
    """A member's acknowledgement of the records from `first` to `last`: one type for all, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AcquireLimits:
    """Limits of one fetch: `records` is soft (the last batch is delivered whole) unless `is_strict`.

    More than `batch` new records are returned in several ranges that end at batch boundaries of the log.
    """

    records: int
    batch: int
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """`locks`: maximum of records in flight; `deliveries`: of one record; `lock_ms`: how long it stays acquired.

    `may_renew`: whether members may renew locks; `has_dead_letters`: whether rejected records, and those delivered too
    often, go to a dead-letter topic.
    """

    locks: int = 2_000
    deliveries: int = 5
    lock_ms: int = 30_000
    may_renew: bool = True
    has_dead_letters: bool = False

    @property
    def state_of_dead(self) -> RecordState:
        """The final state of records that are not delivered again."""
        return RecordState.ARCHIVING if self.has_dead_letters else RecordState.ARCHIVED

    @property
    def careful_from(self) -> int:
        """Number of deliveries from which records come in ever smaller batches: one of them may crash its consumer."""
        return max(2, (self.deliveries + 1) // 2)


@dataclass(frozen=True, slots=True)
class RecordLock:
    """The owner of records, and the end of its lock."""

    member_id: str
    due_ms: int

    def on(self, run: RecordRun) -> RecordRun:
        """Return a run after another delivery."""
        return replace(
            run,
            state=RecordState.ACQUIRED,
            delivery_count=run.delivery_count + 1,
            member_id=self.member_id,
            due_ms=self.due_ms,
        )


def split_run(run: RecordRun, first: int, last: int) -> Iterator[RecordRun]:
    """Split a run at two offsets within it."""
    if run.first < first:
        yield run.part(run.first, first - 1)
    yield run.part(first, last)
    if last < run.last:
        yield run.part(last + 1, run.last)


def isolated(runs: list[RecordRun], first: int, last: int) -> range:
    """Split runs so that some cover exactly the range between two offsets; return their indexes."""
    if not runs or first > last:
        return range(0)
    begin = max(bisect_right(runs, first, key=lambda run: run.first) - 1, 0)
    end = bisect_right(runs, last, key=lambda run: run.first)
    pieces = [
        piece
        for run in runs[begin:end]
        for piece in split_run(run, max(run.first, first), min(run.last, last))
        if piece.first <= piece.last
    ]
    if len(pieces) > end - begin:
        _look_at_each(runs, pieces, begin, end)
    runs[begin:end] = pieces
    within = [at for at, run in enumerate(pieces, begin) if run.first >= first and run.last <= last]
    return range(within[0], within[-1] + 1) if within else range(0)


def _look_at_each(runs: list[RecordRun], pieces: list[RecordRun], begin: int, end: int) -> None:
    """Track the records of batches one by one, as their states differ from now on."""
    before = {run.whole for run in runs[begin:end] if not run.is_single}
    pieces[:] = [replace(piece, is_single=True) if piece.whole in before else piece for piece in pieces]
