"""Connections accepted by listeners, and their throttle times, for metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from stratalog.broker.quotas.meter import METRIC_WINDOW
from stratalog.broker.quotas.rate import WindowedSums


class AcceptReading(NamedTuple):
    """The metrics of one listener. Times are averages of those above 0, in milliseconds; NaN without any."""

    listener: str
    rate: float
    throttle_time: float
    ip_throttle_time: float


class AcceptedConnections:
    """Rates and throttle times of new connections by listener. Belongs to the loop's thread."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        #: By listener: connections, throttle times of the listener, throttle times of addresses.
        self._of: dict[str, tuple[WindowedSums, WindowedSums, WindowedSums]] = {}
        #: Returns the number of open connections by listener; set by the acceptor.
        self.open: Callable[[], Iterable[tuple[str, int]]] = tuple

    def accepted(self, listener: str) -> None:
        """Count a connection, even if it is refused."""
        self._sums(listener)[0].record(1, self._now_ms())

    def throttled(self, listener: str, throttle_ms: int) -> None:
        """Record a throttle time of a listener, or of the broker."""
        self._sums(listener)[1].record(throttle_ms, self._now_ms())

    def throttled_address(self, listener: str, throttle_ms: int) -> None:
        """Record the throttle time of an address above its connection quota."""
        self._sums(listener)[2].record(throttle_ms, self._now_ms())

    def readings(self) -> Iterator[AcceptReading]:
        now_ms = self._now_ms()
        for listener, (accepted, waits, of_addresses) in sorted(self._of.items()):
            yield AcceptReading(listener, accepted.rate(now_ms), waits.average(now_ms), of_addresses.average(now_ms))

    def _sums(self, listener: str) -> tuple[WindowedSums, WindowedSums, WindowedSums]:
        found = self._of.get(listener)
        if found is None:
            found = self._of[listener] = _new_sums(), _new_sums(), _new_sums()
        return found


def _new_sums() -> WindowedSums:
    return WindowedSums(METRIC_WINDOW)
