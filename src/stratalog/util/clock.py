"""Time, as something that is handed in."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock in milliseconds since the epoch, a monotonic clock in seconds, and sleep."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def expect(self, thread: threading.Thread) -> None:  # noqa: ARG002
        """Know of a thread that has started and is going to wait with `wait_until`."""
        return

    def wait_until(
        self,
        changed: threading.Condition,
        due_s: float | None,
        *,
        busy: bool = False,  # noqa: ARG002
    ) -> None:
        """Wait on a condition whose lock is held until it is notified or `due_s` has come; None: until it is notified.

        `due_s` is a time of `monotonic`. `busy` says that the caller waits for work done elsewhere, so a clock that
        tests move does not count it as idle.
        """
        changed.wait(None if due_s is None else max(due_s - self.monotonic(), 0.0))


class SystemClock(Clock):
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
