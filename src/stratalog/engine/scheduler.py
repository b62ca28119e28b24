"""Periodic housekeeping on one thread."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from stratalog.util import SYSTEM_CLOCK, Clock

logger = logging.getLogger(__name__)


class Scheduler:
    """Runs named tasks at fixed delays on one daemon thread, started at the first task.

    A task that raises is logged and runs again at its next turn. `close` waits for the task that is running.
    Thread-safe. Times are in milliseconds of the monotonic clock.
    """

    def __init__(self, name: str = "scheduler", clock: Clock = SYSTEM_CLOCK) -> None:
        self._name = name
        self._clock = clock
        self._order = itertools.count()
        self._heap: list[tuple[float, int, str, Callable[[], object], float | None]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def schedule(
        self, name: str, task: Callable[[], object], *, delay_ms: float = 0, period_ms: float | None = None
    ) -> None:
        """Run `task` after `delay_ms`, and then again `period_ms` after each end; once, when that is None."""
        with self._changed:
            if self._closed:
                return
            due = self._clock.monotonic() + delay_ms / 1000
            heapq.heappush(self._heap, (due, next(self._order), name, task, period_ms))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Start nothing more and wait for what is running."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed:
                    wait = self._heap[0][0] - self._clock.monotonic() if self._heap else None
                    if wait is not None and wait <= 0:
                        break
                    self._changed.wait(wait)
                if self._closed:
                    return
                _, _, name, task, period_ms = heapq.heappop(self._heap)
            try:
                task()
            except Exception:
                logger.exception("Task %s failed; it runs again at its next turn", name)
            if period_ms is not None:
                self.schedule(name, task, delay_ms=period_ms, period_ms=period_ms)
