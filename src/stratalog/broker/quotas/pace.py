"""Throttle times of requests, by the quotas for bytes and time.

A throttled client gets its response at once, and is not read from for that time. Of two exceeded quotas, the longer
throttle time applies.
Source: `KafkaApis.handleProduceRequest`, `handleFetchRequest` and `RequestHandlerHelper` of Kafka 4.4.
"""

from __future__ import annotations

from typing import Final

from stratalog.broker.quotas.meter import METRIC_WINDOW, QuotaClient, QuotaMeter, QuotaThrottle
from stratalog.broker.quotas.rate import WindowedSums
from stratalog.util import Clock

_PERCENT: Final = 100.0


class QuotaPace:
    """The quotas that throttle requests. Belongs to the loop's thread."""

    def __init__(self, produce: QuotaMeter, fetch: QuotaMeter, request: QuotaMeter, clock: Clock) -> None:
        self._produce = produce
        self._fetch = fetch
        self._request = request
        self._now_ms = clock.now_ms
        self._exempt = WindowedSums(METRIC_WINDOW)
        #: A clock in seconds, to measure the time that requests take.
        self.now_s = clock.monotonic

    def fetch_bytes_max(self, client: QuotaClient) -> float:
        """Return how many bytes a client may fetch at once without ever being throttled."""
        return self._fetch.window_max(client, self._now_ms())

    def is_free_to_produce(self, client: QuotaClient) -> bool:
        """Return whether no quota can throttle a client's produce requests; until quotas change, nothing is counted."""
        return not (self._produce.has_limit(client) or self._request.has_limit(client))

    def after_produce(
        self, client: QuotaClient, size: int, busy_s: float, *, is_answered: bool
    ) -> QuotaThrottle | None:
        """Count a Produce request of `size` bytes; return its throttling. With acks=0 it costs no time."""
        now_ms = self._now_ms()
        by_bytes = self._produce.record(client, size, now_ms)
        by_time = 0
        if is_answered:
            by_time = self._request.record(client, busy_s * _PERCENT, now_ms)
        else:
            self.after_exempt(busy_s)
        return self._longer(self._produce, client, by_bytes, by_time, now_ms)

    def after_fetch(self, client: QuotaClient, size: int, busy_s: float) -> QuotaThrottle | None:
        """Count a Fetch response of `size` bytes, unless it is throttled and so not sent; return its throttling."""
        now_ms = self._now_ms()
        by_time = self._request.record(client, busy_s * _PERCENT, now_ms)
        by_bytes = self._fetch.record(client, size, now_ms)
        if by_time or by_bytes:
            self._fetch.record_later(client, -size, now_ms)
        return self._longer(self._fetch, client, by_bytes, by_time, now_ms)

    def after_request(self, client: QuotaClient, busy_s: float) -> QuotaThrottle | None:
        """Count the time of a request; return its throttling."""
        now_ms = self._now_ms()
        by_time = self._request.record(client, busy_s * _PERCENT, now_ms)
        return self._request.throttle(client, by_time, now_ms) if by_time else None

    def after_exempt(self, busy_s: float) -> None:
        """Count the time of a request that is exempt from quotas."""
        if self._request.is_enabled:
            self._exempt.record(busy_s * _PERCENT, self._now_ms())

    def exempt_percentage(self) -> float:
        """Return the time of exempt requests, in percent of a second per second."""
        return self._exempt.rate(self._now_ms())

    def _longer(
        self, meter: QuotaMeter, client: QuotaClient, by_bytes: int, by_time: int, now_ms: int
    ) -> QuotaThrottle | None:
        longer = max(by_bytes, by_time)
        if longer <= 0:
            return None
        return (meter if by_bytes > by_time else self._request).throttle(client, longer, now_ms)
