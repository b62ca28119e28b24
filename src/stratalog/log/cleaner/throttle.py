"""Limit the read and write rate of all cleaners together: `log.cleaner.io.max.bytes.per.second`.

Thread safety: all cleaner threads share one throttle. A thread that exceeds the rate sleeps with the lock held, and the
others wait for it. Source: Kafka's `Throttler`.
"""

from __future__ import annotations

import threading
from typing import Final

from stratalog.util import SYSTEM_CLOCK, Clock

UNLIMITED: Final = float("inf")
_CHECK_INTERVAL_S: Final = 0.3


class Throttle:
    """See the module. `bytes_per_second` may be set at any time and takes effect at once."""

    def __init__(self, bytes_per_second: float = UNLIMITED, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._period_start = clock.monotonic()
        self._observed = 0

    def maybe_throttle(self, size: int) -> None:
        """Count `size` bytes read or written, and sleep if the current period exceeds the rate."""
        with self._lock:
            self._observed += size
            elapsed = self._clock.monotonic() - self._period_start
            if elapsed <= _CHECK_INTERVAL_S or not self._observed:
                return
            if self._observed / elapsed > self.bytes_per_second:
                # The time that these bytes should have taken minus the time that they took, in whole milliseconds.
                pause_ms = round(self._observed / self.bytes_per_second * 1000 - elapsed * 1000)
                if pause_ms > 0:
                    self._clock.sleep(pause_ms / 1000)
            self._period_start = self._clock.monotonic()
            self._observed = 0
