"""Threads that take work from a queue: their number can change while they work, and the queue may have a limit."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from stratalog.errors import QueueFullError

logger = logging.getLogger(__name__)


class WorkerPool:
    """At most `size` threads, begun when there is work for them. Thread-safe.

    `pending_max` bounds the tasks that wait; None means no bound. A task that raises is logged, and its thread
    continues.
    """

    def __init__(self, name: str, size: int, *, pending_max: int | None = None) -> None:
        self._name = name
        self._pending_max = pending_max
        self._changed = threading.Condition()
        self._queue: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._started = 0
        self._size = size
        self._busy = 0
        self._closed = False

    @property
    def size(self) -> int:
        return self._size

    @property
    def pending(self) -> int:
        """The number of tasks that wait for a thread."""
        return len(self._queue)

    @property
    def busy(self) -> int:
        return self._busy

    @property
    def idle_ratio(self) -> float:
        """The share of the threads that have nothing to do, from 0 to 1."""
        return max(0.0, 1.0 - self._busy / self._size)

    def submit(self, work: Callable[..., object], *arguments: Any) -> None:
        """Do `work(*arguments)` on one of the threads.

        QueueFullError when as many as `pending_max` wait already; RuntimeError when the pool is closed.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            full = self._pending_max is not None and len(self._queue) >= self._pending_max
            if full and self._busy >= self._size:
                raise QueueFullError(
                    f"{self._name}: {len(self._queue)} tasks wait for {self._size} threads, which is the limit"
                )
            self._queue.append((work, arguments))
            if len(self._threads) < self._size and self._busy + len(self._queue) > len(self._threads):
                self._start()
            self._changed.notify()

    def resize(self, size: int) -> None:
        """Have at most `size` threads from now on; those that are too many end after the work that they have begun."""
        with self._changed:
            self._size = size
            if not self._closed:
                for _ in range(min(size - len(self._threads), len(self._queue))):
                    self._start()
            self._changed.notify_all()

    def close(self) -> None:
        """Accept no more tasks, drop those that wait, and wait for those that run. May be called again."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._changed.notify_all()
            threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in threads:
            thread.join()

    def _start(self) -> None:
        self._started += 1
        thread = threading.Thread(target=self._run, name=f"{self._name}-{self._started}", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # the system is out of threads
            self._threads.discard(thread)
            if not self._threads:
                raise
            logger.warning(
                "%s works with %d threads, not with %d: %s", self._name, len(self._threads), self._size, error
            )

    def _run(self) -> None:
        while (task := self._next()) is not None:
            work, arguments = task
            try:
                work(*arguments)
            except Exception:
                logger.exception("%s: a task failed", self._name)
            finally:
                # Or what it holds on to lives until the next task.
                del task, work, arguments
                with self._changed:
                    self._busy -= 1

    def _next(self) -> tuple[Callable[..., object], tuple[Any, ...]] | None:
        with self._changed:
            while True:
                if self._closed or len(self._threads) > self._size:
                    self._threads.discard(threading.current_thread())
                    self._changed.notify()  # another thread takes what this one was woken for
                    return None
                if self._queue:
                    self._busy += 1
                    return self._queue.popleft()
                self._changed.wait()
