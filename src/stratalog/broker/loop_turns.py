"""Spread work over several turns of the loop: answers that are due at the same moment, elements of a large request.

Thousands of fetches may wait for the same record or for the same moment, and thousands of members for the last one to
join. The loop runs everything that is due before it reads from its sockets again. Without this module, a client that
sends a request at that moment would wait until all these answers are written.

A request may name hundreds of thousands of groups or partitions, each of which takes some microseconds.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, TypeVar

logger = logging.getLogger(__name__)

#: Answers of a turn: about a millisecond.
STEPS_A_TURN: Final = 8
#: Elements of a request to process before others have their turn: about a millisecond.
ELEMENTS_A_TURN: Final = 200

_T = TypeVar("_T")


def pieces_of(elements: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Yield as many elements at a time as are processed in a turn."""
    return (elements[at : at + ELEMENTS_A_TURN] for at in range(0, len(elements), ELEMENTS_A_TURN))


class SharedTurns:
    """Gives large requests turns to continue: a piece of one of them in each turn of the loop, the oldest first.

    If all advanced alike, the answers to all of them would be in memory half done. Belongs to the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._orders = itertools.count()
        #: By the place of the request, then in the order of the calls.
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    async def next(self, order: int | None = None) -> int:
        """Wait until other clients, and older requests, had their turn. Return the place for the next call.

        Without a place, the request is newer than all others.
        """
        call = next(self._orders)
        if order is None:
            order = call
        turn = self._loop.create_future()
        heappush(self._waiting, (order, call, turn))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._give)
        await turn
        return order

    def _give(self) -> None:
        _, _, turn = heappop(self._waiting)
        if not turn.done():  # else its request was cancelled
            turn.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._give)


class LoopTurns:
    """Runs steps in order: immediately while there are few, the rest in later turns. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: deque[Callable[[], object]] = deque()
        #: Steps run in this turn. Unless it is 0, `_next_turn` is scheduled.
        self._count = 0

    def run(self, step: Callable[[], object]) -> None:
        """Run a step now, or in a later turn if others wait. An exception of a step is logged."""
        if not self._count:
            self._loop.call_soon(self._next_turn)
        if self._steps or self._count >= STEPS_A_TURN:
            self._steps.append(step)
        else:
            self._run(step)

    def _run(self, step: Callable[[], object]) -> None:
        self._count += 1
        try:
            step()
        except Exception:  # the others wait too
            logger.exception("A waiting client could not be answered")

    def _next_turn(self) -> None:
        self._count = 0
        for _ in range(min(len(self._steps), STEPS_A_TURN)):
            self._run(self._steps.popleft())
        if self._count:
            self._loop.call_soon(self._next_turn)
