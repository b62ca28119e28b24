"""Periodic work over large collections, done in slices between requests.

A coordinator may have 100,000 groups or transactional ids. Iterating over all of them in one turn of the loop would
delay every client by tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final

logger = logging.getLogger(__name__)

#: Length of a slice, after which clients get their turn.
_SLICE_S: Final = 0.001

#: Work in steps. Requests may be handled between two steps.
Steps = Callable[[], Iterator[object]]


class Tidying:
    """Runs work periodically. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handles: dict[str, asyncio.Handle] = {}
        self._closed = False

    def close(self) -> None:
        """Stop; unfinished work is abandoned."""
        self._closed = True
        for handle in self._handles.values():
            handle.cancel()

    def every(self, name: str, interval_s: Callable[[], float], work: Steps) -> None:
        """Run `work` periodically; the interval starts when it has ended. A failure is logged."""
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
        except Exception:  # without further runs, this work would never be done again
            logger.exception("%s failed; it will be retried in %.0f s", name, interval_s())
        self.every(name, interval_s, work)
