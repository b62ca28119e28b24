"""Requests that wait for records to arrive.

An append must not cost a call for each of them: a request says how many bytes it misses, the purgatory subtracts the
bytes that arrive, and asks it once it may have enough. How much arrives is known from two ends of the log in one
segment; where it is not known, all requests that wait for the partition are checked.
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
    """Something that waits for partitions to change."""

    isolation: Isolation
    #: Bytes, over all of its partitions, before which the waiter need not be asked. The purgatory subtracts what
    #: arrives; the waiter sets it again whenever it is asked and has to go on waiting.
    missing: int

    def changed(self, partition: Partition) -> bool:
        """Look whether there is enough now, or the partition's leadership ended. Called on the loop's thread.

        Return True when the wait is over and the waiter needs no more calls. Must not raise.
        """
        ...


#: Numbers that say where the last readable byte lies, if its segment is known.
_WITH_SEGMENT = 4


class Growth:
    """Measures the bytes that arrive in a partition for readers of one isolation."""

    __slots__ = ("_isolation", "_partition", "_position", "_segment")

    def __init__(self, partition: Partition, isolation: Isolation) -> None:
        self._partition = partition
        self._isolation = isolation
        self._segment, self._position = self._end()

    def take(self) -> int | None:
        """Return the bytes that arrived since the last call, None if that cannot be said.

        Never too few: what arrives while this looks is counted now or at the next call.
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

        Where only the offset is known, or nothing may be read: the epoch without a segment, and the offset or -1.
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
    """Those who wait for one partition with one isolation."""

    __slots__ = ("asked", "growth", "waiters")

    def __init__(self, growth: Growth) -> None:
        self.growth = growth
        self.waiters: dict[Waiter, None] = {}
        #: Those who are about to be asked.
        self.asked: set[Waiter] = set()

    def due(self) -> list[Waiter]:
        """Return those who have to be asked now."""
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
    """Knows who waits for which partition. Everything but `notify` belongs to the loop's thread.

    Waiters are asked in a later turn of the loop, once for all appends of this turn; when they are many, in several.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._waiting: dict[Partition, dict[Isolation, _Waiters]] = {}
        self._changed: dict[Partition, None] = {}
        self._turns = LoopTurns(loop)
        #: Waits that ended because their time was over.
        self.expired = 0
        #: The same of fetches of share groups.
        self.share_expired = 0
        #: Requests that wait for the remote tier, which keeps its own books, and those that did so for too long.
        self.remote_waiting = 0
        self.remote_expired = 0

    @property
    def watch_count(self) -> int:
        """Waiters, each counted once for each of its partitions."""
        return sum(len(each.waiters) for waiting in self._waiting.values() for each in waiting.values())

    def __len__(self) -> int:
        return len(
            {waiter for waiting in self._waiting.values() for each in waiting.values() for waiter in each.waiters}
        )

    def watch(self, waiter: Waiter, partitions: Iterable[Partition]) -> None:
        """Ask `waiter` after changes from now on; what happened before is the caller's to check."""
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
        """Undo `watch`; do nothing when the waiter is not known."""
        isolation = waiter.isolation
        for partition in partitions:
            each = self._waiting.get(partition, {}).get(isolation)
            if each is not None and each.waiters.pop(waiter, self) is None:
                self._drop_empty(partition)

    def _drop_empty(self, partition: Partition) -> None:
        """Stop listening to a partition that nothing waits for."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            return
        for isolation in [isolation for isolation, each in waiting.items() if not each.waiters]:
            del waiting[isolation]
        if not waiting:
            del self._waiting[partition]
            partition.remove_listener(self.notify)

    def notify(self, partition: Partition) -> None:
        """Note that a partition changed. Thread-safe."""
        if threading.get_ident() == self._thread:
            self._note(partition)
        else:
            try:
                self._loop.call_soon_threadsafe(self._note, partition)
            except RuntimeError:  # the loop is closed, and with it all that waited
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
        except Exception:  # the others wait too; this one has a timer of its own
            logger.exception("A request that waits for %s-%d failed", partition.topic, partition.partition)
        if not each.waiters:
            self._drop_empty(partition)

    def end_wait(self, end: Callable[[], object]) -> None:
        """Call `end` of a wait whose time is over; when there are many of them, in a later turn of the loop."""
        self._turns.run(end)
