"""Rates and event loop delays of a broker over the last ten minutes, for charts.

A thread reads counters every two seconds. Five times a second it also measures how long the loop takes to respond.
Every request waits that long before it is handled, so a stalled broker shows at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from stratalog.broker import QUANTILES, BrokerServices, RequestPart
from stratalog.engine.metrics import TopicTraffic

EVERY_S: Final = 2.0
_KEPT: Final = 300
_ASK_EVERY_S: Final = 0.2
#: How often the times of requests are read, on the broker's loop.
_READ_EVERY_S: Final = 1.0
#: Number of delays for quantiles: those of the last minute.
_WAITS: Final = 300
_MEDIAN: Final = QUANTILES.index(0.5)
_HIGH: Final = QUANTILES.index(0.99)


class RequestFigures(NamedTuple):
    """Count and total time of the requests of one name, over the last minutes."""

    name: str
    requests: int
    per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class RatePoint:
    """Rates of one interval that ended at `at_ms`, per second; delays in milliseconds."""

    at_ms: int
    bytes_in: float
    bytes_out: float
    records_in: float
    requests: float
    wait_p50_ms: float
    wait_p99_ms: float
    #: Times of requests over the last minutes, with more weight on later ones.
    produce_p50_ms: float = 0.0
    produce_p99_ms: float = 0.0
    fetch_p50_ms: float = 0.0
    fetch_p99_ms: float = 0.0


class RateSampler:
    """Runs from `start` to `close`. `points` and `topic_rates` may be read at any time."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stratalog-web-sampler", daemon=True)
        self._points: deque[RatePoint] = deque(maxlen=_KEPT)
        self._waits: deque[float] = deque(maxlen=_WAITS)
        self._counts: dict[str, tuple[int, int, int, int]] = {}
        #: Bytes in, bytes out and records per second, by topic.
        self.topic_rates: Mapping[str, tuple[float, float, float]] = {}
        self._asked_at: float | None = None
        #: By name, as of `_read_at`; replaced as a whole.
        self._requests: Mapping[str, RequestFigures] = {}
        self._read_at = float("-inf")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def points(self) -> list[RatePoint]:
        return list(self._points)

    def requests(self) -> list[RequestFigures]:
        """Return the figures of all requests by name, one or two seconds old."""
        return list(self._requests.values())

    def waits_now_ms(self) -> float:
        """Return how long the current check of the loop has waited."""
        asked = self._asked_at
        return 0.0 if asked is None else (self._broker.clock.monotonic() - asked) * 1000

    def _run(self) -> None:
        clock = self._broker.clock
        before, self._counts = clock.monotonic(), self._count()
        while not self._stop.wait(_ASK_EVERY_S):
            if not self._ask():
                return
            now = clock.monotonic()
            if now - before >= EVERY_S:
                self._sample(now - before)
                before = now

    def _ask(self) -> bool:
        """Measure the delay of the loop. Return False when it has ended."""
        clock = self._broker.clock
        if self._asked_at is not None:
            return True
        asked = self._asked_at = clock.monotonic()

        def answered() -> None:
            self._waits.append((clock.monotonic() - asked) * 1000)
            if clock.monotonic() - self._read_at >= _READ_EVERY_S:
                self._read_requests(clock.monotonic())
            self._asked_at = None

        try:
            self._broker.loop.call_soon_threadsafe(answered)
        except RuntimeError:
            return False
        return True

    def _read_requests(self, now: float) -> None:
        """Read request times, on the loop's thread."""
        seconds, was = now - self._read_at, self._requests
        found = {}
        for name, times in self._broker.request_times.items():
            summary = times.summary(RequestPart.TOTAL)
            more = summary.requests - (was[name].requests if name in was else 0)
            longest = times.spread(RequestPart.TOTAL).max
            found[name] = RequestFigures(
                name,
                requests=summary.requests,
                per_second=more / seconds,
                # Quantiles are accurate to 5 %, the longest time is exact.
                p50_ms=min(summary.quantiles[_MEDIAN], longest),
                p99_ms=min(summary.quantiles[_HIGH], longest),
                max_ms=longest,
            )
        self._requests, self._read_at = found, now

    def _count(self) -> dict[str, tuple[int, int, int, int]]:
        traffic = self._broker.logs.traffic
        return {name: _counts_of(counts) for name, counts in traffic.topics().items()}

    def _sample(self, seconds: float) -> None:
        counts = self._count()
        rates: dict[str, tuple[float, ...]] = {}
        for name, now in counts.items():
            was = self._counts.get(name, (0, 0, 0, 0))
            rates[name] = tuple(max(new - old, 0) / seconds for new, old in zip(now, was, strict=True))
        self._counts = counts
        self.topic_rates = {name: (each[0], each[1], each[2]) for name, each in rates.items()}
        none = RequestFigures("", 0, 0.0, 0.0, 0.0, 0.0)
        produce, fetch = (self._requests.get(name, none) for name in ("Produce", "Fetch"))
        waits = sorted([*self._waits, *([self.waits_now_ms()] if self._asked_at is not None else [])])
        self._points.append(
            RatePoint(
                at_ms=self._broker.clock.now_ms(),
                bytes_in=sum(each[0] for each in rates.values()),
                bytes_out=sum(each[1] for each in rates.values()),
                records_in=sum(each[2] for each in rates.values()),
                requests=sum(each[3] for each in rates.values()),
                wait_p50_ms=quantile(waits, 0.5),
                wait_p99_ms=quantile(waits, 0.99),
                produce_p50_ms=produce.p50_ms,
                produce_p99_ms=produce.p99_ms,
                fetch_p50_ms=fetch.p50_ms,
                fetch_p99_ms=fetch.p99_ms,
            )
        )


def _counts_of(traffic: TopicTraffic) -> tuple[int, int, int, int]:
    return (
        traffic.bytes_in,
        traffic.bytes_out,
        traffic.messages_in,
        traffic.produce_requests + traffic.fetch_requests,
    )


def quantile(ascending: list[float], share: float) -> float:
    """Return a quantile of ascending values; 0 for none."""
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)] if ascending else 0.0


def points_json(points: list[RatePoint]) -> list[dict[str, Any]]:
    return [
        {
            "atMs": point.at_ms,
            "bytesIn": round(point.bytes_in, 1),
            "bytesOut": round(point.bytes_out, 1),
            "recordsIn": round(point.records_in, 1),
            "requests": round(point.requests, 1),
            "waitP50Ms": round(point.wait_p50_ms, 2),
            "waitP99Ms": round(point.wait_p99_ms, 2),
            "produceP50Ms": round(point.produce_p50_ms, 2),
            "produceP99Ms": round(point.produce_p99_ms, 2),
            "fetchP50Ms": round(point.fetch_p50_ms, 2),
            "fetchP99Ms": round(point.fetch_p99_ms, 2),
        }
        for point in points
    ]


def requests_json(requests: list[RequestFigures]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "requests": each.requests,
            "perSecond": round(each.per_second, 1),
            "p50Ms": round(each.p50_ms, 3),
            "p99Ms": round(each.p99_ms, 3),
            "maxMs": round(each.max_ms, 3),
        }
        for each in requests
    ]
