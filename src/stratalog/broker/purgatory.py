"""Requests that wait for records to arrive."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from typing import Protocol

from stratalog.engine.partition import Partition

logger = logging.getLogger(__name__)


class Waiter(Protocol):
    """Something that waits for partitions to change."""

    def changed(self, partition: Partition) -> bool:
        """Called on the loop's thread after the partition's high watermark moved or its leadership ended; True when the
        wait is over and the waiter needs no more calls. Must not raise."""
        ...


class Purgatory:
    """Knows who waits for which partition. Everything but `notify` belongs to the loop's thread.

    Waiters are told in a later turn of the loop, once for all appends of this turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._waiters: dict[Partition, dict[Waiter, None]] = {}
        self._changed: dict[Partition, None] = {}
        #: Waits that ended because their time was over.
        self.expired = 0
        #: Requests that wait for the remote tier, which keeps its own books, and those that did so for too long.
        self.remote_waiting = 0
        self.remote_expired = 0

    @property
    def watch_count(self) -> int:
        """Waiters, each counted once for each of its partitions."""
        return sum(map(len, self._waiters.values()))

    def __len__(self) -> int:
        return len({waiter for waiters in self._waiters.values() for waiter in waiters})

    def watch(self, waiter: Waiter, partitions: Iterable[Partition]) -> None:
        """Tell `waiter` of changes from now on; what happened before is the caller's to check."""
        for partition in partitions:
            waiters = self._waiters.get(partition)
            if waiters is None:
                waiters = self._waiters[partition] = {}
                partition.add_listener(self.notify)
            waiters[waiter] = None

    def forget(self, waiter: Waiter, partitions: Iterable[Partition]) -> None:
        """The opposite of `watch`; harmless when the waiter is not known."""
        for partition in partitions:
            waiters = self._waiters.get(partition)
            if waiters is not None and waiters.pop(waiter, self) is None and not waiters:
                del self._waiters[partition]
                partition.remove_listener(self.notify)

    def notify(self, partition: Partition) -> None:
        """A partition changed. From any thread."""
        if threading.get_ident() == self._thread:
            self._note(partition)
        else:
            try:
                self._loop.call_soon_threadsafe(self._note, partition)
            except RuntimeError:  # the loop is closed, and with it whoever waited
                return

    def _note(self, partition: Partition) -> None:
        if not self._changed:
            self._loop.call_soon(self._tell)
        self._changed[partition] = None

    def _tell(self) -> None:
        changed, self._changed = self._changed, {}
        for partition in changed:
            waiters = self._waiters.get(partition)
            if waiters is None:
                continue
            for waiter in list(waiters):
                try:
                    if waiter in waiters and waiter.changed(partition):
                        waiters.pop(waiter, None)
                except Exception:  # the others wait too; this one has a timer of its own
                    logger.exception("A request that waits for %s-%d failed", partition.topic, partition.partition)
            if not waiters and self._waiters.get(partition) is waiters:
                del self._waiters[partition]
                partition.remove_listener(self.notify)
