"""One kind of quota, for all clients: what each has used of its limit, and how long it has to wait.

A client that is quiet for an hour is forgotten, as in Kafka. Beyond that, when there are very many, those go first
whose forgetting changes nothing: a name costs a client nothing, so their number must not be up to clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from stratalog.broker.quotas.levels import UNLIMITED, QuotaLevels, SharedBy
from stratalog.broker.quotas.rate import QuotaWindow, RateSensor, Sensor, WindowedSums

#: A client that was quiet for so long is forgotten.
EXPIRY_MS: Final = 3_600_000
#: From so many clients on, those are forgotten that would be measured the same afterwards.
_MANY: Final = 10_000
#: How many of them are looked at for each new one.
_LOOKS: Final = 4
#: Windows of metrics that are no quotas: `metrics.num.samples` and `metrics.sample.window.ms`, as they are by default.
METRIC_WINDOW: Final = QuotaWindow(2, 30_000)


class QuotaClient(NamedTuple):
    """Who sent a request, as quotas tell clients apart."""

    user: str
    client_id: str


class QuotaThrottle(NamedTuple):
    """That a client has to wait, and by which quota."""

    ms: int
    meter: QuotaMeter


class _Measured:
    """Those who are measured together."""

    __slots__ = ("last_ms", "limit", "more", "sensor", "throttle_times")

    def __init__(self, sensor: Sensor, limit: float, now_ms: int, *, has_rate: bool) -> None:
        self.sensor = sensor
        self.limit = limit
        self.last_ms = now_ms
        self.throttle_times: WindowedSums | None = None
        #: The rate, where the sensor does not show it.
        self.more = WindowedSums(METRIC_WINDOW) if has_rate else None


class MeterReading(NamedTuple):
    """What metrics show of those who are measured together."""

    shared_by: SharedBy
    #: Of the sensor: a rate, or tokens.
    value: float
    rate: float
    throttle_time: float


class QuotaMeter:
    """Belongs to the loop's thread."""

    def __init__(
        self,
        window: QuotaWindow,
        make: Callable[[QuotaWindow], Sensor] = RateSensor,
        *,
        throttle_ms_max: int | None = None,
        has_rate: bool = False,
    ) -> None:
        """Measure by sensors that `make` makes; `has_rate` for those that do not show a rate themselves."""
        self._window = window
        self._make = make
        self._throttle_ms_max = throttle_ms_max
        self._has_rate = has_rate
        self._levels = QuotaLevels()
        #: Connections whose clients have to wait.
        self.queue_size = 0
        #: The one that was used last at the end.
        self._measured: dict[SharedBy, _Measured] = {}

    def __len__(self) -> int:
        return len(self._measured)

    @property
    def is_enabled(self) -> bool:
        """Whether any client has a limit."""
        return bool(self._levels)

    def set_limit(self, user: str | None, client_id: str | None, limit: float | None) -> None:
        """Set the limit of a level (see `QuotaLevels`), or (None) remove it; it holds for what was measured before."""
        self._levels.set(user, client_id, limit)
        for shared_by, measured in self._measured.items():
            measured.limit = self._levels.limit(shared_by)

    def has_limit(self, client: QuotaClient) -> bool:
        """Return whether a client has a limit."""
        return self.is_enabled and self._levels.limit(self._levels.shared_by(*client)) < UNLIMITED

    def window_max(self, client: QuotaClient, now_ms: int) -> float:
        """Return the most that a client may use at once without being throttled in any case."""
        if not self.is_enabled:
            return math.inf
        limit = self._of(client, now_ms).limit
        return math.inf if limit >= UNLIMITED else limit * (self._window.count - 1) * self._window.size_ms / 1000

    def record(self, client: QuotaClient, value: float, now_ms: int) -> int:
        """Count what a client has used; return how long it has to wait, in milliseconds."""
        if not self.is_enabled:
            return 0
        measured = self._record(client, value, now_ms)
        return self._throttle_ms(measured, now_ms)

    def record_later(self, client: QuotaClient, value: float, now_ms: int) -> None:
        """Count what a client has used, or (negative) has not used after all; it is throttled by the next request."""
        if self.is_enabled:
            self._record(client, value, now_ms)

    def exhausted_ms(self, client: QuotaClient, now_ms: int) -> int | None:
        """Return how long a client has to wait before it may use any; None when it may now."""
        if not self.is_enabled:
            return None
        measured = self._of(client, now_ms)
        if measured.limit >= UNLIMITED or measured.sensor.value(measured.limit, now_ms) >= 0:
            return None
        return self._throttle_ms(measured, now_ms)

    def throttle(self, client: QuotaClient, throttle_ms: int, now_ms: int) -> QuotaThrottle:
        """Return that a client has to wait; metrics show it."""
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

    # --- those who are measured ---------------------------------------------------------------------------------------

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
