"""Work over everything there is lets clients have their turn, and comes back whatever happens to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from stratalog.broker.tidying import Tidying


def test_others_have_their_turn_between_slices() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        others: list[int] = []
        seen: list[int] = []

        def steps() -> Iterator[None]:
            for _ in range(20):
                seen.append(len(others))
                others.append(0)
                loop.call_soon(others.pop)
                time.sleep(0.001)  # as long as a slice
                yield
            ended.set()

        tidying = Tidying(loop)
        tidying.every("work", lambda: 0.0, steps)
        await asyncio.wait_for(ended.wait(), 30)
        tidying.close()
        assert seen[:20] == [0] * 20

    asyncio.run(run())


def test_what_fails_is_done_again_and_a_close_ends_it() -> None:
    async def run() -> None:
        begun = 0
        thrice = asyncio.Event()

        def steps() -> Iterator[None]:
            nonlocal begun
            begun += 1
            if begun == 3:
                thrice.set()
            yield
            raise OSError("the disk is gone")

        tidying = Tidying(asyncio.get_running_loop())
        tidying.every("work", lambda: 0.0, steps)
        await asyncio.wait_for(thrice.wait(), 30)
        tidying.close()
        ended_at = begun
        for _ in range(10):
            await asyncio.sleep(0)
        assert begun == ended_at

    asyncio.run(run())


def test_a_close_between_two_slices_ends_the_work() -> None:
    async def run() -> None:
        done = 0
        begun = asyncio.Event()

        def steps() -> Iterator[None]:
            nonlocal done
            while True:
                time.sleep(0.001)
                done += 1
                begun.set()
                yield

        tidying = Tidying(asyncio.get_running_loop())
        tidying.every("work", lambda: 0.0, steps)
        await asyncio.wait_for(begun.wait(), 30)
        tidying.close()
        at_close = done
        for _ in range(10):
            await asyncio.sleep(0)
        assert done == at_close

    asyncio.run(run())
