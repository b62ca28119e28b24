"""Cancellation of a partition's tasks, after which they no longer change the log."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Cancellation:
    """Set once, never cleared. Thread-safe."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        #: Whether another broker takes over: unfinished work must not be completed here.
        self.is_resigned = False

    def set(self, *, resigned: bool = False) -> None:
        """Cancel. After this returns, nothing passed to `unless_set` runs."""
        with self._lock:
            self.is_resigned = self.is_resigned or resigned
            self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the cancellation. Return whether it has come."""
        return self._event.wait(timeout_s)

    def unless_set(self, act: Callable[[], object]) -> None:
        """Run something short, unless cancelled. A concurrent cancellation waits for it."""
        with self._lock:
            if not self._event.is_set():
                act()
