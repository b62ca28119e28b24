"""Requests that wait for records to arrive.

An append must not cost a call for each of them: a request states how many bytes it is missing, the purgatory subtracts
the bytes that arrive, and calls it once it may have enough. The bytes are computed from two log ends in one segment; if
they are unknown, all requests that wait for the partition are called.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from stratalog.broker.loop_turns import LoopTurns
from stratalog.engine import Partition
from stratalog.log.format import Isolation

logger = logging.getLogger(__name__)


class Waiter(Protocol):
    """An object that waits for changes of partitions."""

    isolation: Isolation
    #: Bytes, over all of its partitions, before which the waiter need not be called. The purgatory subtracts what
    #: arrives; the waiter sets it again whenever it is called and has to continue waiting.
    missing: int

    def changed(self, partition: Partition) -> bool:
        """Check whether there is enough now, or the partition's leadership ended. Called on the loop's thread.

        Return True when the wait is over and the waiter needs no more calls. Must not raise.
        """
        ...


#: Numbers that identify the last readable byte's position, if its segment is known.
_WITH_SEGMENT = 4


class Growth:
    """Measures the bytes that arrive in a partition for one isolation level."""

    __slots__ = ("_isolation", "_partition", "_position", "_segment")

    def __init__(self, partition: Partition, isolation: Isolation) -> None:
        self._partition = partition
        self._isolation = isolation
        self._segment, self._position = self._end()

    def take(self) -> int | None:
        """Return the bytes that arrived since the last call, None if unknown.

        Never too few: bytes that arrive during this call are counted now or at the next call.
        """
        segment, position = self._segment, self._position
        self._segment, self._position = now, end = self._end()
        if now != segment:
            return None
        if len(now) < _WITH_SEGMENT:
            return 0 if end == position else None
        return end - position

    def _end(self) -> tuple[tuple[int, ...], int]:
        """Return the epoch and the segment of the last readable byte, and its position.

        If only the offset is known, or nothing is readable: the epoch without a segment, and the offset or -1.
        """
        partition, isolation = self._partition, self._isolation
        epoch = partition.read_epoch
        if epoch < 0:
            return (epoch,), -1
        log = partition.log
        truncations = log.truncations
        end = log.readable_end(isolation)
        if end is None:
            return (epoch, truncations), partition.latest_offset(isolation)
        return (epoch, truncations, log.log_start_offset, end.segment_base_offset), end.position


class _Waiters:
    """The waiters for one partition with one isolation level."""

    __slots__ = ("asked", "growth", "waiters")

    def __init__(self, growth: Growth) -> None:
        self.growth = growth
        self.waiters: dict[Waiter, None] = {}
        #: Waiters that are about to be called.
        self.asked: set[Waiter] = set()

    def due(self) -> list[Waiter]:
        """Return the waiters to call now."""
        grown = self.growth.take()
        if grown is None:
            return list(self.waiters)
        due = []
        if grown:
            for waiter in self.waiters:
                waiter.missing -= grown
                if waiter.missing <= 0:
                    due.append(waiter)
        return due


class Purgatory:
    """Tracks which requests wait for which partitions. Everything but `notify` belongs to the loop's thread.

    Waiters are called in a later turn of the loop, once for all appends of this turn; if there are many, in several
    turns.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._waiting: dict[Partition, dict[Isolation, _Waiters]] = {}
        self._changed: dict[Partition, None] = {}
        self._turns = LoopTurns(loop)
        #: Waits that timed out.
        self.expired = 0
        #: The same for fetches of share groups.
        self.share_expired = 0
        #: Requests that wait for the remote tier, which are tracked elsewhere, and those that timed out.
        self.remote_waiting = 0
        self.remote_expired = 0

    @property
    def watch_count(self) -> int:
        """Number of waiters, each counted once for each of its partitions."""
        return sum(len(each.waiters) for waiting in self._waiting.values() for each in waiting.values())

    def __len__(self) -> int:
        return len(
            {waiter for waiting in self._waiting.values() for each in waiting.values() for waiter in each.waiters}
        )

    def watch(self, waiter: Waiter, partitions: Iterable[Partition]) -> None:
        """Call `waiter` after changes from now on; the caller has to check for earlier ones."""
        isolation = waiter.isolation
        for partition in partitions:
            waiting = self._waiting.get(partition)
            if waiting is None:
                waiting = self._waiting[partition] = {}
                partition.add_listener(self.notify)
            each = waiting.get(isolation)
            if each is None:
                each = waiting[isolation] = _Waiters(Growth(partition, isolation))
            each.waiters[waiter] = None

    def forget(self, waiter: Waiter, partitions: Iterable[Partition]) -> None:
        """Undo `watch`; unknown waiters are ignored."""
        isolation = waiter.isolation
        for partition in partitions:
            each = self._waiting.get(partition, {}).get(isolation)
            if each is not None and each.waiters.pop(waiter, self) is None:
                self._drop_empty(partition)

    def _drop_empty(self, partition: Partition) -> None:
        """Stop listening to a partition without waiters."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            return
        for isolation in [isolation for isolation, each in waiting.items() if not each.waiters]:
            del waiting[isolation]
        if not waiting:
            del self._waiting[partition]
            partition.remove_listener(self.notify)

    def notify(self, partition: Partition) -> None:
        """Record a change of a partition. Thread-safe."""
        if threading.get_ident() == self._thread:
            self._note(partition)
        else:
            try:
                self._loop.call_soon_threadsafe(self._note, partition)
            except RuntimeError:  # the loop is closed
                return

    def _note(self, partition: Partition) -> None:
        if not self._changed:
            self._loop.call_soon(self._ask)
        self._changed[partition] = None

    def _ask(self) -> None:
        changed, self._changed = self._changed, {}
        for partition in changed:
            for each in list(self._waiting.get(partition, {}).values()):
                for waiter in each.due():
                    if waiter not in each.asked:
                        each.asked.add(waiter)
                        self._turns.run(partial(self._ask_one, partition, each, waiter))

    def _ask_one(self, partition: Partition, each: _Waiters, waiter: Waiter) -> None:
        each.asked.discard(waiter)
        try:
            if waiter in each.waiters and waiter.changed(partition):
                each.waiters.pop(waiter, None)
        except Exception:  # other waiters must be called too; this one has its own timer
            logger.exception("A request that waits for %s-%d failed", partition.topic, partition.partition)
        if not each.waiters:
            self._drop_empty(partition)

    def end_wait(self, end: Callable[[], object]) -> None:
        """Call `end` for a wait that timed out; if there are many, in a later turn of the loop."""
        self._turns.run(end)
