"""Answers that fall due in one moment are given a few in each turn of the loop, whatever they waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.test_purgatory import FakeWaiter, partitions

from stratalog.broker.groups.classic_coordinator import ClassicCoordinator
from stratalog.broker.groups.values import Answer, JoinReply
from stratalog.broker.loop_turns import STEPS_A_TURN, LoopTurns
from stratalog.broker.purgatory import Purgatory

CROWD = 5 * STEPS_A_TURN + 1


async def in_each_turn(count: Callable[[], int], until: int) -> list[int]:
    """How much more `count` gives in each turn of the loop, until it gives that much."""
    grown, before = [], 0
    for _ in range(10 * CROWD):
        now = count()
        grown.append(now - before)
        before = now
        if now == until:
            return grown
        await asyncio.sleep(0)
    raise AssertionError(f"{before} of {until}")


def test_few_steps_are_run_at_once_and_many_a_few_in_each_turn() -> None:
    async def main() -> None:
        turns = LoopTurns(asyncio.get_running_loop())
        done: list[int] = []
        for number in range(CROWD):
            turns.run(lambda number=number: done.append(number))  # type: ignore[misc]
        assert await in_each_turn(lambda: len(done), CROWD) == [*[STEPS_A_TURN] * 5, 1]
        assert done == list(range(CROWD))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        turns.run(lambda: done.append(-1))
        assert done[-1] == -1

    asyncio.run(main())


def test_a_step_that_fails_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        turns = LoopTurns(asyncio.get_running_loop())
        done: list[int] = []
        for number in range(CROWD):
            turns.run(lambda number=number: done.append(1 // (number % 3)))  # type: ignore[misc]
        for _ in range(CROWD):
            await asyncio.sleep(0)
        assert len(done) == sum(number % 3 > 0 for number in range(CROWD))

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "A waiting client could not be answered" in caplog.text


def test_waits_that_one_append_ends_are_ended_a_few_in_each_turn() -> None:
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        (fake,), watched = partitions(1)
        waiters = [FakeWaiter(enough=1) for _ in range(CROWD)]
        for waiter in waiters:
            purgatory.watch(waiter, watched)
        fake.change()
        grown = await in_each_turn(lambda: sum(waiter.reported for waiter in waiters), CROWD)
        assert max(grown) == STEPS_A_TURN
        assert not fake.listeners

    asyncio.run(main())


def test_who_is_about_to_be_asked_is_not_asked_twice_for_more_appends() -> None:
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        (fake,), watched = partitions(1)
        waiters = [FakeWaiter(enough=1) for _ in range(CROWD)]
        for waiter in waiters:
            purgatory.watch(waiter, watched)
        late = FakeWaiter(enough=1)
        for _ in range(3):
            fake.change()
            await asyncio.sleep(0)
        purgatory.watch(late, watched)
        fake.change()
        grown = await in_each_turn(lambda: late.reported + sum(waiter.reported for waiter in waiters), CROWD + 1)
        assert len(grown) <= 5 + 2
        assert {waiter.reported for waiter in waiters} == {1}

    asyncio.run(main())


def test_waits_whose_time_is_over_in_one_moment_are_ended_a_few_in_each_turn() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        purgatory = Purgatory(loop)
        ended: list[int] = []
        for number in range(CROWD):
            loop.call_soon(purgatory.end_wait, lambda number=number: ended.append(number))
        assert max(await in_each_turn(lambda: len(ended), CROWD)) == STEPS_A_TURN
        assert ended == list(range(CROWD))

    asyncio.run(main())


def test_the_members_of_a_large_group_are_answered_a_few_in_each_turn() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(CROWD)]
        futures[3].cancel()  # its connection is gone
        coordinator: Any = SimpleNamespace(_turns=LoopTurns(loop))
        group: Any = SimpleNamespace()
        replies: Any = [JoinReply(future, Answer.NONE, f"member-{at}") for at, future in enumerate(futures)]
        ClassicCoordinator._apply(coordinator, group, replies)
        assert max(await in_each_turn(lambda: sum(each.done() for each in futures), CROWD)) <= STEPS_A_TURN + 1
        assert futures[-1].result().member_id == f"member-{CROWD - 1}"

    asyncio.run(main())
