"""Waiters are notified once for all changes of a turn, whichever thread made them; who is gone is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import cast

from stratalog.broker.purgatory import Purgatory
from stratalog.engine.partition import Partition
from stratalog.log.format.values import Isolation, LogOffset


class FakePartition:
    """As much of a partition as the purgatory sees, and of its log. Each change is a byte more."""

    leader_epoch = 0
    truncations = 0
    log_start_offset = 0

    def __init__(self) -> None:
        self.listeners: list[Callable[[FakePartition], None]] = []
        self.segment = 0
        self.size = 0
        self.stable_offset: int | None = None

    @property
    def read_epoch(self) -> int:
        return self.leader_epoch

    @property
    def log(self) -> FakePartition:
        return self

    def readable_end(self, _: Isolation) -> LogOffset | None:
        return LogOffset(self.size, self.segment, self.size) if self.stable_offset is None else None

    def latest_offset(self, _: Isolation) -> int | None:
        return self.stable_offset

    def add_listener(self, listener: Callable[[FakePartition], None]) -> None:
        self.listeners.append(listener)

    def remove_listener(self, listener: Callable[[FakePartition], None]) -> None:
        self.listeners.remove(listener)

    def change(self, size: int = 1) -> None:
        self.size += size
        for listener in list(self.listeners):
            listener(self)


class FakeWaiter:
    """Counts what it is notified of; is satisfied after `enough` times, and waits for `missing` bytes before each."""

    isolation = Isolation.HIGH_WATERMARK

    def __init__(self, enough: int, missing: int = 1) -> None:
        self.reported = 0
        self.enough = enough
        self.missing = self.each = missing

    def changed(self, partition: Partition) -> bool:
        self.reported += 1
        self.missing = self.each
        return self.reported >= self.enough


def partitions(count: int) -> tuple[list[FakePartition], list[Partition]]:
    made = [FakePartition() for _ in range(count)]
    return made, cast("list[Partition]", made)


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_waiter_is_reported_once_for_all_changes_of_a_turn() -> None:
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        (fake,), (partition,) = partitions(1)
        waiter = FakeWaiter(enough=2)
        purgatory.watch(waiter, [partition])
        for _ in range(5):
            fake.change()
        assert waiter.reported == 0
        await turns()
        assert waiter.reported == 1
        assert len(purgatory) == 1
        fake.change()
        await turns()
        assert waiter.reported == 2
        assert len(purgatory) == 0
        assert fake.listeners == []
        fake.change()
        await turns()
        assert waiter.reported == 2

    asyncio.run(main())


def test_changes_may_come_from_any_thread() -> None:
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        (fake,), (partition,) = partitions(1)
        waiter = FakeWaiter(enough=1)
        purgatory.watch(waiter, [partition])
        await asyncio.to_thread(fake.change)
        await turns()
        assert waiter.reported == 1

    asyncio.run(main())


def test_who_is_forgotten_is_not_notified_even_of_what_was_before() -> None:
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        fakes, watched = partitions(3)
        gone, stays = FakeWaiter(enough=1), FakeWaiter(enough=9)
        purgatory.watch(gone, watched)
        purgatory.watch(stays, watched[:1])
        fakes[0].change()
        purgatory.forget(gone, watched)
        purgatory.forget(gone, watched)
        await turns()
        assert (gone.reported, stays.reported) == (0, 1)
        assert [len(fake.listeners) for fake in fakes] == [1, 0, 0]

    asyncio.run(main())


def test_a_waiter_may_take_others_along_while_it_is_reported() -> None:
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        (fake,), watched = partitions(1)
        other = FakeWaiter(enough=1)

        class Canceller(FakeWaiter):
            def changed(self, partition: Partition) -> bool:
                purgatory.forget(other, watched)
                purgatory.forget(self, watched)
                return super().changed(partition)

        first = Canceller(enough=1)
        purgatory.watch(first, watched)
        purgatory.watch(other, watched)
        fake.change()
        await turns()
        assert (first.reported, other.reported) == (1, 0)
        assert fake.listeners == []

    asyncio.run(main())


def test_a_change_after_the_end_of_the_loop_is_no_ones_business() -> None:
    async def main() -> tuple[Purgatory, Partition]:
        (_, (partition,)) = partitions(1)
        purgatory = Purgatory(asyncio.get_running_loop())
        purgatory.watch(FakeWaiter(enough=1), [partition])
        return purgatory, partition

    purgatory, partition = asyncio.run(main())
    thread = threading.Thread(target=purgatory.notify, args=(partition,))
    thread.start()
    thread.join()


def test_a_waiter_is_asked_when_what_it_misses_may_have_come_and_not_before() -> None:
    """Over all of its partitions; and whenever it cannot be said how much came."""

    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        (one, two), watched = partitions(2)
        waiter = FakeWaiter(enough=9, missing=10)
        purgatory.watch(waiter, watched)

        async def reported_by(change: Callable[[], None]) -> bool:
            before = waiter.reported
            change()
            await turns()
            return waiter.reported > before

        assert not await reported_by(lambda: one.change(6))
        assert not await reported_by(lambda: two.change(3))
        assert await reported_by(lambda: one.change(1))  # ten, in both together
        assert not await reported_by(lambda: one.change(9))
        one.segment = 7
        assert await reported_by(lambda: one.change(-9))
        two.truncations += 2
        assert await reported_by(lambda: two.change(0))
        two.log_start_offset += 1
        assert await reported_by(lambda: two.change(1))
        one.stable_offset = 5  # a transaction is open: no one knows where offset 5 is
        assert await reported_by(lambda: one.change(1))
        assert not await reported_by(lambda: one.change(100))
        one.stable_offset = 6
        assert await reported_by(lambda: one.change(1))
        one.stable_offset = None
        assert await reported_by(lambda: one.change(1))
        two.leader_epoch = -1
        assert await reported_by(lambda: two.change(0))

    asyncio.run(main())
