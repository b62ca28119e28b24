"""Byte-rate limits of the remote tier: one for copies, one for fetches, each for the whole broker (KIP-956).

The rate is measured over sliding windows as Kafka's `SimpleRate` does. Copies wait until it is back at the limit; fetches
are shed: the client gets an empty answer and asks again.
"""

from __future__ import annotations

import threading
from collections import deque

from stratalog.util.clock import SYSTEM_CLOCK, Clock


class RateQuota:
    """At most `bytes_per_second` on average over `window_count` windows of `window_seconds`. Thread-safe."""

    def __init__(
        self, bytes_per_second: int, window_count: int, window_seconds: int, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self._window_count = window_count
        self._window_s = float(window_seconds)
        self._clock = clock
        self._windows: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def record(self, size: int) -> None:
        """Count bytes that were sent, or are about to be."""
        with self._lock:
            self._purge()
            now = self._clock.monotonic()
            if self._windows and now - self._windows[-1][0] < self._window_s:
                start, total = self._windows.pop()
                self._windows.append((start, total + size))
            else:
                self._windows.append((now, size))

    def throttle_ms(self) -> int:
        """How long to wait until the rate is within the limit; 0 when it is."""
        with self._lock:
            self._purge()
            if not self._windows:
                return 0
            elapsed = max(self._clock.monotonic() - self._windows[0][0], self._window_s)
            total = sum(size for _, size in self._windows)
            if total <= self.bytes_per_second * elapsed:
                return 0
            # (rate - limit) / limit of the measured time, as Kafka's QuotaUtils.throttleTime.
            return max(1, round((total / self.bytes_per_second - elapsed) * 1000))

    def _purge(self) -> None:
        oldest = self._clock.monotonic() - self._window_count * self._window_s
        while self._windows and self._windows[0][0] <= oldest:
            self._windows.popleft()
