"""Apply records of `__share_group_state` to a state, and create the record for a change. Pure.

After a number of updates the next record is a snapshot with all of them. Source: `ShareCoordinatorShard` and
`PersisterStateBatchCombiner` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise

from stratalog.broker.share.state_records import NOT_KNOWN, ShareSnapshot, ShareUpdate, StateBatch


@dataclass(frozen=True, slots=True)
class HeldState:
    """A snapshot with all updates applied, their number, and the highest epochs ever written."""

    snapshot: ShareSnapshot
    updates: int
    leader_epoch: int
    state_epoch: int


@dataclass(frozen=True, slots=True)
class ShareWrite:
    """New states of records: `leader_epoch` only for a new leader."""

    start_offset: int
    done_count: int = NOT_KNOWN
    batches: tuple[StateBatch, ...] = ()
    leader_epoch: int | None = None


def after(held: HeldState | None, value: ShareSnapshot | ShareUpdate, updates_max: int) -> HeldState:
    if isinstance(value, ShareSnapshot):
        if held is None:
            return HeldState(value, 0, value.leader_epoch, value.state_epoch)
        return HeldState(
            value,
            0 if held.updates >= updates_max else held.updates,
            max(held.leader_epoch, value.leader_epoch),
            max(held.state_epoch, value.state_epoch),
        )
    if held is None:  # its snapshot is lost
        snapshot = ShareSnapshot(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=0,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            done_count=value.done_count,
            created_ms=0,
            written_ms=0,
            batches=value.batches,
        )
        return HeldState(snapshot, 1, value.leader_epoch, 0)
    before = held.snapshot
    start_offset = before.start_offset if value.start_offset == NOT_KNOWN else value.start_offset
    snapshot = replace(
        before,
        leader_epoch=before.leader_epoch if value.leader_epoch == NOT_KNOWN else value.leader_epoch,
        start_offset=start_offset,
        done_count=value.done_count,
        batches=combined(before.batches, value.batches, start_offset),
    )
    return replace(
        held, snapshot=snapshot, updates=held.updates + 1, leader_epoch=max(held.leader_epoch, value.leader_epoch)
    )


def record_for(held: HeldState, said: ShareWrite, updates_max: int, now_ms: int) -> ShareSnapshot | ShareUpdate:
    known = held.snapshot
    leader_epoch = known.leader_epoch if said.leader_epoch is None else said.leader_epoch
    start_offset = max(said.start_offset, known.start_offset)
    done_count = said.done_count
    if said.start_offset == known.start_offset:
        done_count = max(done_count, known.done_count)
    elif said.start_offset < known.start_offset:
        done_count = known.done_count
    if held.updates >= updates_max:
        return ShareSnapshot(
            snapshot_epoch=known.snapshot_epoch + 1,
            state_epoch=known.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            done_count=done_count,
            created_ms=now_ms,
            written_ms=now_ms,
            batches=combined(known.batches, said.batches, start_offset),
        )
    return ShareUpdate(
        snapshot_epoch=known.snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        done_count=done_count,
        batches=combined((), said.batches, start_offset),
    )


def combined(known: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches without overlaps and without records below the start.

    For a record in two batches, the one with more deliveries wins, then the one with the later state.
    """
    kept = [
        batch if batch.first >= start_offset else replace(batch, first=start_offset)
        for batch in (*known, *new)
        if batch.last >= start_offset
    ]
    if len(kept) < 2:
        return tuple(kept)
    kept.sort(key=lambda batch: batch.first)
    is_apart = all(batch.last < behind.first for batch, behind in pairwise(kept))
    return tuple(_joined(kept if is_apart else _without_overlaps(kept)))


def _without_overlaps(kept: Sequence[StateBatch]) -> Iterator[StateBatch]:
    edges = sorted({edge for batch in kept for edge in (batch.first, batch.last + 1)})
    active: list[tuple[int, int, int]] = []  # heap by priority: negative deliveries, negative state; last offset
    at = 0
    for first, end in pairwise(edges):
        while at < len(kept) and kept[at].first <= first:
            heappush(active, (-kept[at].delivery_count, -kept[at].state, kept[at].last))
            at += 1
        while active and active[0][2] < first:
            heappop(active)
        if active:
            yield StateBatch(first, end - 1, -active[0][1], -active[0][0])


def _joined(batches: Iterable[StateBatch]) -> Iterator[StateBatch]:
    """Join neighbours with the same state."""
    held: StateBatch | None = None
    for batch in batches:
        if held is None:
            held = batch
        elif held.last + 1 == batch.first and held.state == batch.state and held.delivery_count == batch.delivery_count:
            held = replace(held, last=batch.last)
        else:
            yield held
            held = batch
    if held is not None:
        yield held
