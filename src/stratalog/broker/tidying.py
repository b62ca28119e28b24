"""Work that comes back every so often, and may look at everything there is: done in slices between requests.

A coordinator may have 100,000 groups or transactional ids. To look at all of them in one turn of the loop would keep
every client waiting for tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final

logger = logging.getLogger(__name__)

#: After so long the clients have their turn.
_SLICE_S: Final = 0.001

#: What is to be done, step by step. Requests may be answered between two steps.
Steps = Callable[[], Iterator[object]]


class Tidying:
    """Starts each piece of work again and again. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handles: dict[str, asyncio.Handle] = {}
        self._closed = False

    def close(self) -> None:
        """Stop; what is half done stays so."""
        self._closed = True
        for handle in self._handles.values():
            handle.cancel()

    def every(self, name: str, interval_s: Callable[[], float], work: Steps) -> None:
        """Do `work` after each interval, which begins when it has ended. What fails is logged, and tried again then."""
        if not self._closed:
            self._handles[name] = self._loop.call_later(interval_s(), self._go_on, name, interval_s, work, None)

    def _go_on(self, name: str, interval_s: Callable[[], float], work: Steps, begun: Iterator[object] | None) -> None:
        until_s = perf_counter() + _SLICE_S
        try:
            steps = work() if begun is None else begun
            for _ in steps:
                if perf_counter() >= until_s:
                    if not self._closed:
                        self._handles[name] = self._loop.call_soon(self._go_on, name, interval_s, work, steps)
                    return
        except Exception:  # whatever it is: nothing else would ever do this work again
            logger.exception("%s failed; it is tried again in %.0f s", name, interval_s())
        self.every(name, interval_s, work)
