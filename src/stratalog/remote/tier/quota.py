"""Byte-rate limits of the remote tier for copies and fetches of the whole broker (KIP-956).

The rate is measured over sliding windows as in Kafka's `SimpleRate`. Copies wait until it is back at the limit. Fetches
are rejected: the client gets an empty response and tries again.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from stratalog.util import SYSTEM_CLOCK, Clock


@dataclass(slots=True)
class ThrottleCounts:
    """How often a quota delayed something, and for how long in total and at most."""

    times: int = 0
    total_ms: int = 0
    max_ms: int = 0

    def add(self, throttle_ms: int) -> None:
        self.times += 1
        self.total_ms += throttle_ms
        self.max_ms = max(self.max_ms, throttle_ms)


class RateQuota:
    """At most `bytes_per_second` on average over `window_count` windows of `window_seconds`. Thread-safe.

    `throttled` counts delays; `bytes_per_second` may be changed at any time.
    """

    def __init__(
        self, bytes_per_second: int, window_count: int, window_seconds: int, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.throttled = ThrottleCounts()
        self._window_count = window_count
        self._window_s = float(window_seconds)
        self._clock = clock
        self._windows: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def acquire(self, size: int) -> int:
        """Add `size` bytes to the rate if it is within the limit and return 0, else return how long to wait, in ms.

        A call within the limit succeeds for any size; the next ones wait for that.
        """
        with self._lock:
            throttle_ms = self._throttle_ms()
            if throttle_ms == 0:
                self._record(size)
            else:
                self.throttled.add(throttle_ms)
            return throttle_ms

    def shed_ms(self) -> int:
        """Return `throttle_ms` for a request that is rejected unless it is 0, and count it."""
        with self._lock:
            throttle_ms = self._throttle_ms()
            if throttle_ms:
                self.throttled.add(throttle_ms)
            return throttle_ms

    def record(self, size: int) -> None:
        """Count bytes that were or will be sent."""
        with self._lock:
            self._record(size)

    def rate(self) -> float:
        """Average bytes per second over the windows; Kafka's `byte-rate`."""
        with self._lock:
            self._purge()
            if not self._windows:
                return 0.0
            elapsed = max(self._clock.monotonic() - self._windows[0][0], self._window_s)
            return sum(size for _, size in self._windows) / elapsed

    def throttle_ms(self) -> int:
        """Return how long to wait until the rate is within the limit, or 0."""
        with self._lock:
            return self._throttle_ms()

    def _record(self, size: int) -> None:
        self._purge()
        now = self._clock.monotonic()
        if self._windows and now - self._windows[-1][0] < self._window_s:
            start, total = self._windows.pop()
            self._windows.append((start, total + size))
        else:
            self._windows.append((now, size))

    def _throttle_ms(self) -> int:
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
