"""Time, as something that is handed in."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock in milliseconds since the epoch, a monotonic clock in seconds, and sleep."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
