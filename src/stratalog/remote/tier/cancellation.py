"""The end of a partition's tasks, as they see it: no effect on the log comes after it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Cancellation:
    """Set once, never cleared. Thread-safe."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        #: Whether another broker does the work from now on: what is half done must not be finished here.
        self.is_resigned = False

    def set(self, *, resigned: bool = False) -> None:
        """From the return of this on nothing that was given to `unless_set` runs."""
        with self._lock:
            self.is_resigned = self.is_resigned or resigned
            self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the cancellation; whether it has come."""
        return self._event.wait(timeout_s)

    def unless_set(self, act: Callable[[], object]) -> None:
        """Do something short, unless the tasks were cancelled; they are not cancelled while it is being done."""
        with self._lock:
            if not self._event.is_set():
                act()
