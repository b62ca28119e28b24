"""Kafka's sensors: rates over a few windows, and the time until they are within a bound again. Pure.

Source: `SampledStat`, `Rate`, `TokenBucket` and `QuotaUtils` of Kafka 4.4. The order of additions is Kafka's too, so
that throttle times are equal to the millisecond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """`count` windows of `size_ms` each, including the current one."""

    count: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        return self.count * self.size_ms


def rounded(value: float) -> int:
    """Round to milliseconds, halves up as in Java, and at most the largest value of the protocol.

    Kafka lets larger values overflow, so that some of the worst offenders are not throttled.
    """
    if math.isnan(value):
        return 0
    return INT_MAX if value >= INT_MAX else math.floor(value + 0.5)


class _WindowSum:
    """The values recorded in one window."""

    __slots__ = ("count", "last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.restart(now_ms)

    def restart(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0
        self.count = 0


class WindowedSums:
    """The sums of the latest windows. One more than `count` is kept, as it may overlap."""

    __slots__ = ("_current", "_window", "_windows")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._windows: list[_WindowSum] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self._windows:
            self._windows.append(_WindowSum(now_ms))
        each = self._windows[self._current]
        if now_ms - each.start_ms >= self._window.size_ms:
            each = self._next(now_ms)
        each.value += value
        each.count += 1
        each.last_ms = now_ms

    def _next(self, now_ms: int) -> _WindowSum:
        self._current = (self._current + 1) % (self._window.count + 1)
        if self._current >= len(self._windows):
            self._windows.append(_WindowSum(now_ms))
        else:
            self._windows[self._current].restart(now_ms)
        return self._windows[self._current]

    def _forget_old(self, now_ms: int) -> None:
        for each in self._windows:
            if now_ms - each.last_ms >= self._window.span_ms:
                each.restart(now_ms)

    def average(self, now_ms: int) -> float:
        """Return the average of the recorded values; NaN without any."""
        self._forget_old(now_ms)
        count = sum(each.count for each in self._windows)
        return sum(each.value for each in self._windows) / count if count else math.nan

    def rate(self, now_ms: int) -> float:
        """Return the recorded sum per second."""
        self._forget_old(now_ms)
        total = 0.0
        for each in self._windows:
            total += each.value
        return total / (self.measured_ms(now_ms) / 1000.0)

    def measured_ms(self, now_ms: int) -> int:
        """Return the time span of `rate`: since the oldest window, but at least all windows but one."""
        self._forget_old(now_ms)
        if not self._windows:
            self._windows.append(_WindowSum(now_ms))
        size_ms = self._window.size_ms
        elapsed_ms = now_ms - min(each.start_ms for each in self._windows)
        full = int(elapsed_ms / size_ms)
        missing = self._window.count - 1 - full
        return max(elapsed_ms + missing * size_ms if missing > 0 else elapsed_ms, 1)


class Sensor(Protocol):
    """Measures one quota of one client."""

    def record(self, value: float, bound: float, now_ms: int) -> None: ...

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return how long it takes until the quota is kept again, if nothing more comes; 0 while it is kept."""
        ...

    def value(self, bound: float, now_ms: int) -> float:
        """Return what Kafka's metric shows."""
        ...

    def is_as_new(self, bound: float, now_ms: int) -> bool:
        """Return whether forgetting it would change no throttle time."""
        ...


class RateSensor:
    """A rate per second with an upper bound."""

    __slots__ = ("_last_ms", "_sums", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._sums = WindowedSums(window)
        self._last_ms = 0

    def record(self, value: float, bound: float, now_ms: int) -> None:  # noqa: ARG002
        self._sums.record(value, now_ms)
        self._last_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        rate = self._sums.rate(now_ms)
        if rate <= bound:
            return 0
        return rounded((rate - bound) / bound * self._sums.measured_ms(now_ms))

    def value(self, bound: float, now_ms: int) -> float:  # noqa: ARG002
        return self._sums.rate(now_ms)

    def is_as_new(self, bound: float, now_ms: int) -> bool:  # noqa: ARG002
        return now_ms - self._last_ms >= self._window.span_ms


class TokenSensor:
    """A token bucket, which `bound` per second fills up to the capacity of all windows together."""

    __slots__ = ("_at_ms", "_span_s", "_tokens")

    def __init__(self, window: QuotaWindow) -> None:
        self._span_s = window.count * (window.size_ms / 1000.0)
        self._tokens = 0.0
        self._at_ms = 0

    def record(self, value: float, bound: float, now_ms: int) -> None:
        burst = self._refill(bound, now_ms)
        self._tokens = min(burst, self._tokens - value)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        self._refill(bound, now_ms)
        return rounded(-self._tokens / bound * 1000) if self._tokens < 0 else 0

    def value(self, bound: float, now_ms: int) -> float:
        self._refill(bound, now_ms)
        return self._tokens

    def is_as_new(self, bound: float, now_ms: int) -> bool:
        return self._refill(bound, now_ms) <= self._tokens

    def _refill(self, bound: float, now_ms: int) -> float:
        """Add the tokens since the last call; return the bucket's capacity."""
        burst = self._span_s * bound
        self._tokens = min(burst, self._tokens + bound * ((now_ms - self._at_ms) / 1000.0))
        self._at_ms = now_ms
        return burst
