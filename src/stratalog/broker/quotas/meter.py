"""One quota, for all clients: the usage of each, and its throttle time.

A client that is idle for an hour is forgotten, as in Kafka. When there are very many clients, those whose measurements
make no difference are forgotten first: client ids are free, so clients must not be able to exhaust memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from stratalog.broker.quotas.levels import UNLIMITED, QuotaLevels, SharedBy
from stratalog.broker.quotas.rate import QuotaWindow, RateSensor, Sensor, WindowedSums

#: A client is forgotten after this idle time.
EXPIRY_MS: Final = 3_600_000
#: From this many clients on, those that would be measured the same as a new one are forgotten.
_MANY: Final = 10_000
#: Number of clients to check for each new one.
_LOOKS: Final = 4
#: Window of metrics that are no quotas: the defaults of `metrics.num.samples` and `metrics.sample.window.ms`.
METRIC_WINDOW: Final = QuotaWindow(2, 30_000)


class QuotaClient(NamedTuple):
    user: str
    client_id: str


class QuotaThrottle(NamedTuple):
    """A throttle time and the quota that caused it."""

    ms: int
    meter: QuotaMeter


class _Measured:
    """The measurements of clients that share a limit."""

    __slots__ = ("last_ms", "limit", "more", "sensor", "throttle_times")

    def __init__(self, sensor: Sensor, limit: float, now_ms: int, *, has_rate: bool) -> None:
        self.sensor = sensor
        self.limit = limit
        self.last_ms = now_ms
        self.throttle_times: WindowedSums | None = None
        #: The rate, if the sensor does not measure one.
        self.more = WindowedSums(METRIC_WINDOW) if has_rate else None


class MeterReading(NamedTuple):
    """The metrics of clients that share a limit."""

    shared_by: SharedBy
    #: Of the sensor: a rate, or tokens.
    value: float
    rate: float
    throttle_time: float


class QuotaMeter:
    """Measures one quota. Belongs to the loop's thread."""

    def __init__(
        self,
        window: QuotaWindow,
        make: Callable[[QuotaWindow], Sensor] = RateSensor,
        *,
        throttle_ms_max: int | None = None,
        has_rate: bool = False,
    ) -> None:
        """`make` creates sensors; `has_rate` adds a rate for sensors that do not measure one."""
        self._window = window
        self._make = make
        self._throttle_ms_max = throttle_ms_max
        self._has_rate = has_rate
        self._levels = QuotaLevels()
        #: Throttled connections.
        self.queue_size = 0
        #: Least recently used first.
        self._measured: dict[SharedBy, _Measured] = {}

    def __len__(self) -> int:
        return len(self._measured)

    @property
    def is_enabled(self) -> bool:
        """Whether any client has a limit."""
        return bool(self._levels)

    def set_limit(self, user: str | None, client_id: str | None, limit: float | None) -> None:
        """Set the limit of a level (see `QuotaLevels`); None removes it. Earlier measurements count for it."""
        self._levels.set(user, client_id, limit)
        for shared_by, measured in self._measured.items():
            measured.limit = self._levels.limit(shared_by)

    def has_limit(self, client: QuotaClient) -> bool:
        return self.is_enabled and self._levels.limit(self._levels.shared_by(*client)) < UNLIMITED

    def window_max(self, client: QuotaClient, now_ms: int) -> float:
        """Return how much a client may use at once without ever being throttled."""
        if not self.is_enabled:
            return math.inf
        limit = self._of(client, now_ms).limit
        return math.inf if limit >= UNLIMITED else limit * (self._window.count - 1) * self._window.size_ms / 1000

    def record(self, client: QuotaClient, value: float, now_ms: int) -> int:
        """Record a client's usage; return its throttle time in ms."""
        if not self.is_enabled:
            return 0
        measured = self._record(client, value, now_ms)
        return self._throttle_ms(measured, now_ms)

    def record_later(self, client: QuotaClient, value: float, now_ms: int) -> None:
        """Record a client's usage, or (negative) take it back; only its next request is throttled."""
        if self.is_enabled:
            self._record(client, value, now_ms)

    def exhausted_ms(self, client: QuotaClient, now_ms: int) -> int | None:
        """Return how long a client has to wait before any use, in ms; None if it need not."""
        if not self.is_enabled:
            return None
        measured = self._of(client, now_ms)
        if measured.limit >= UNLIMITED or measured.sensor.value(measured.limit, now_ms) >= 0:
            return None
        return self._throttle_ms(measured, now_ms)

    def throttle(self, client: QuotaClient, throttle_ms: int, now_ms: int) -> QuotaThrottle:
        """Record a throttle time for metrics, and return it."""
        measured = self._of(client, now_ms)
        if measured.throttle_times is None:
            measured.throttle_times = WindowedSums(METRIC_WINDOW)
        measured.throttle_times.record(throttle_ms, now_ms)
        return QuotaThrottle(throttle_ms, self)

    def readings(self, now_ms: int) -> Iterator[MeterReading]:
        """Yield the measurements of all clients."""
        self._expire(now_ms)
        for shared_by, measured in self._measured.items():
            value = measured.sensor.value(measured.limit, now_ms)
            rate = value if measured.more is None else measured.more.rate(now_ms)
            times = measured.throttle_times
            yield MeterReading(shared_by, value, rate, math.nan if times is None else times.average(now_ms))

    def _record(self, client: QuotaClient, value: float, now_ms: int) -> _Measured:
        measured = self._of(client, now_ms)
        measured.sensor.record(value, measured.limit, now_ms)
        if measured.more is not None:
            measured.more.record(value, now_ms)
        return measured

    def _throttle_ms(self, measured: _Measured, now_ms: int) -> int:
        throttle_ms = measured.sensor.throttle_ms(measured.limit, now_ms)
        return throttle_ms if self._throttle_ms_max is None else min(throttle_ms, self._throttle_ms_max)

    def _of(self, client: QuotaClient, now_ms: int) -> _Measured:
        shared_by = self._levels.shared_by(*client)
        found = self._measured.pop(shared_by, None)
        if found is None:
            self._expire(now_ms)
            self._make_room(now_ms)
            limit = self._levels.limit(shared_by)
            found = _Measured(self._make(self._window), limit, now_ms, has_rate=self._has_rate)
        self._measured[shared_by] = found
        found.last_ms = now_ms
        return found

    def _expire(self, now_ms: int) -> None:
        while self._measured:
            oldest = next(iter(self._measured))
            if now_ms - self._measured[oldest].last_ms <= EXPIRY_MS:
                return
            del self._measured[oldest]

    def _make_room(self, now_ms: int) -> None:
        for _ in range(_LOOKS):
            if len(self._measured) < _MANY:
                return
            oldest = next(iter(self._measured))
            measured = self._measured.pop(oldest)
            if not measured.sensor.is_as_new(measured.limit, now_ms):
                self._measured[oldest] = measured  # its turn comes again
