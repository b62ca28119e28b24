"""Wait until appended records are replicated, or for a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from stratalog.broker.purgatory import Purgatory
from stratalog.engine import Partition
from stratalog.errors import KafkaError, RequestTimedOutError
from stratalog.log.format import Isolation


class Unconfirmed(NamedTuple):
    """Appended records that may not be replicated yet."""

    partition: Partition
    topic: str
    last_offset: int
    #: The leader epoch of the append.
    leader_epoch: int

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition.partition


class Confirmation:
    """Waits for the replicas, or for its timeout. Belongs to the loop's thread."""

    #: It waits for the high watermark, and checks each of its moves.
    isolation = Isolation.HIGH_WATERMARK

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        purgatory: Purgatory,
        timeout_ms: int,
        waiting: list[Unconfirmed],
        go_on: Callable[[dict[tuple[str, int], KafkaError]], object],
    ) -> None:
        """`go_on` is called once, with the failures by topic and partition, unless this is cancelled."""
        self._purgatory = purgatory
        self._waiting = waiting
        self._go_on = go_on
        self._failed: dict[tuple[str, int], KafkaError] = {}
        self._over = False
        self._watched = dict.fromkeys(each.partition for each in waiting)
        self.missing = 0
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire)
        purgatory.watch(self, self._watched)
        loop.call_soon(self._look)  # for changes before the watch

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._timer.cancel()
            self._purgatory.forget(self, self._watched)

    def changed(self, partition: Partition) -> bool:  # noqa: ARG002
        self.missing = 0
        self._look()
        return self._over

    def _look(self) -> None:
        if not self._over:
            self._waiting = still_unconfirmed(self._waiting, self._failed)
            if not self._waiting:
                self._finish()

    def _expire(self) -> None:
        if not self._over:
            self._purgatory.expired += 1
            for each in self._waiting:
                self._failed[each.place] = RequestTimedOutError("the replicas did not confirm the records in time")
            self._finish()

    def _finish(self) -> None:
        self.cancel()
        self._go_on(self._failed)


def still_unconfirmed(waiting: Iterable[Unconfirmed], failed: dict[tuple[str, int], KafkaError]) -> list[Unconfirmed]:
    """Return the records that are not confirmed yet, and add failed ones to `failed`."""
    left = []
    for each in waiting:
        try:
            if not each.partition.is_confirmed(each.last_offset, each.leader_epoch):
                left.append(each)
        except KafkaError as error:
            failed[each.place] = error
    return left


async def confirmed(
    loop: asyncio.AbstractEventLoop, purgatory: Purgatory, timeout_ms: int, appended: Iterable[Unconfirmed]
) -> dict[tuple[str, int], KafkaError]:
    """Wait for the replicas; return the failures by topic and partition."""
    failed: dict[tuple[str, int], KafkaError] = {}
    waiting = still_unconfirmed(appended, failed)
    if waiting:
        future: asyncio.Future[dict[tuple[str, int], KafkaError]] = loop.create_future()

        def settle(found: dict[tuple[str, int], KafkaError]) -> None:
            if not future.done():
                future.set_result(found)

        confirmation = Confirmation(loop, purgatory, timeout_ms, waiting, settle)
        try:
            failed |= await future
        finally:
            confirmation.cancel()
    return failed
