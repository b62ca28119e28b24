"""The controller mutation quota: a request may exceed what is left of it once (KIP-599).

Newer clients get an error for each topic when the quota is exhausted; changes of older ones are all made, and the
client is throttled afterwards.
Source: `StrictControllerMutationQuota` and `PermissiveControllerMutationQuota` of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.broker.quotas.meter import QuotaClient, QuotaMeter, QuotaThrottle
from stratalog.errors import ThrottlingQuotaExceededError


class MutationPermit:
    """One request's share of the quota. Belongs to the loop's thread."""

    __slots__ = ("_client", "_is_strict", "_meter", "_now_ms", "_throttle_ms", "_throttled_at_ms")

    def __init__(self, meter: QuotaMeter, client: QuotaClient, *, is_strict: bool, now_ms: Callable[[], int]) -> None:
        self._meter = meter
        self._client = client
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._throttle_ms = 0
        self._throttled_at_ms = 0

    def take(self, partitions: int) -> None:
        """Charge partitions to be created or deleted; ThrottlingQuotaExceededError if a strict quota is exhausted."""
        now_ms = self._now_ms()
        if not self._is_strict:
            self._note(self._meter.record(self._client, partitions, now_ms), now_ms)
            return
        wait_ms = self._meter.exhausted_ms(self._client, now_ms)
        if wait_ms is not None:
            self._note(wait_ms, now_ms)
            raise ThrottlingQuotaExceededError("The throttling quota has been exceeded.")
        self._meter.record_later(self._client, partitions, now_ms)

    def _note(self, throttle_ms: int, now_ms: int) -> None:
        if throttle_ms:
            self._throttle_ms, self._throttled_at_ms = throttle_ms, now_ms

    def end(self, by_time: QuotaThrottle | None) -> QuotaThrottle | None:
        """Return the longer throttling: this quota's or `by_time`."""
        now_ms = self._now_ms()
        throttle_ms = self._throttle_ms - (now_ms - self._throttled_at_ms)
        if throttle_ms > (0 if by_time is None else by_time.ms):
            return self._meter.throttle(self._client, throttle_ms, now_ms)
        return by_time
