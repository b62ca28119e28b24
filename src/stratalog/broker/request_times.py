"""Durations of requests by name: Kafka's RequestMetrics.

A connection records a few clock readings per request, or per run of requests that were answered together. They are
aggregated when there are many, or when metrics are read. So a request costs about a microsecond.

Quantiles are those of the last minutes: older values have less weight, as in Kafka. They are accurate within 5 %. With
many requests, every eighth one is sampled for them and for minimum and deviation; counts, sums and maxima are exact.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from operator import mul, sub
from time import perf_counter
from typing import Final, NamedTuple

#: Number of notes to aggregate together, of which every `_STRIDE`th is sampled for quantiles.
_NOTES_MAX: Final = 512
_STRIDE: Final = 8
#: Age at which a value has half its weight.
_HALF_LIFE_S: Final = 46.0
#: Steps per doubling, so that neighbours differ by 9 %.
_STEPS: Final = 8
#: Unit of seconds; smaller values are 0.
_UNIT_S: Final = 1e-6
#: As in Kafka's JMX metrics.
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class RequestPart(Enum):
    """The measured parts of a request; the value is Kafka's name. All but the size are in milliseconds."""

    TOTAL = "TotalTimeMs"
    QUEUE = "RequestQueueTimeMs"
    LOCAL = "LocalTimeMs"
    REMOTE = "RemoteTimeMs"
    THROTTLE = "ThrottleTimeMs"
    RESPONSE_QUEUE = "ResponseQueueTimeMs"
    SEND = "ResponseSendTimeMs"
    BYTES = "RequestBytes"


class RequestNote(NamedTuple):
    """Readings of `perf_counter` for requests that were answered together, except those of their sending."""

    version: int
    requests: int
    #: Average size of the requests.
    size: float
    received: float
    begun: float
    #: When the broker's own work ended.
    worked: float
    #: When the answer was ready: later than `worked` if it had to wait.
    answered: float
    throttle_ms: float = 0.0


class Summary(NamedTuple):
    """Total count and sum of one part, and its recent values at `QUANTILES`."""

    requests: int
    total: float
    quantiles: tuple[float, ...]


class Spread(NamedTuple):
    """Minimum, maximum, average and standard deviation of one part since the start, as in Kafka."""

    min: float
    max: float
    mean: float
    deviation: float


class _Moments:
    """Of the values of one part, in units: extremes, and sums for the deviation of those that were sampled."""

    __slots__ = ("max", "min", "squares", "total", "weight")

    def __init__(self) -> None:
        self.min, self.max = math.inf, 0.0
        self.weight = self.total = self.squares = 0.0

    @property
    def deviation(self) -> float:
        if not self.weight:
            return 0.0
        mean = self.total / self.weight
        return math.sqrt(max(self.squares / self.weight - mean * mean, 0.0))


class NamedRequestTimes:
    """The durations of requests of one name. Belongs to the loop's thread."""

    __slots__ = ("_decayed_at", "_moments", "_notes", "_sums", "_weights", "versions")

    def __init__(self) -> None:
        self._notes: list[tuple[float, ...]] = []
        self._sums = dict.fromkeys(RequestPart, 0.0)
        self._weights: dict[RequestPart, dict[int, float]] = {part: {} for part in RequestPart}
        self._moments = {part: _Moments() for part in RequestPart}
        self._decayed_at = perf_counter()
        #: Counts by version; as of the last `settle`.
        self.versions: Counter[int] = Counter()

    def add(self, note: RequestNote, flushed: float, sent: float) -> None:
        """Count requests whose answers were sent between the last two readings."""
        notes = self._notes
        notes.append((*note, flushed, sent))
        if len(notes) >= _NOTES_MAX:
            self._settle(_STRIDE)

    def settle(self) -> None:
        """Aggregate all notes."""
        self._settle(1)

    def summary(self, part: RequestPart) -> Summary:
        """Return the values of a part, as of the last `settle`."""
        count, total, weights = self.versions.total(), self._sums[part], self._weights[part]
        if part is RequestPart.BYTES:
            return Summary(count, total, tuple(map(_value, _at_quantiles(weights))))
        at = _at_quantiles(weights)
        return Summary(count, total * 1000, tuple(_value(step) * _UNIT_S * 1000 for step in at))

    def spread(self, part: RequestPart) -> Spread:
        """Return the extremes, average and deviation of a part, as of the last `settle`."""
        count = self.versions.total()
        if not count:
            return Spread(0.0, 0.0, 0.0, 0.0)
        of = self._moments[part]
        unit, scale = (1.0, 1.0) if part is RequestPart.BYTES else (_UNIT_S * 1000, 1000.0)
        return Spread(of.min * unit, of.max * unit, self._sums[part] * scale / count, of.deviation * unit)

    def _settle(self, stride: int) -> None:
        notes = self._notes
        if not notes:
            return
        versions, counts, sizes, received, begun, worked, answered, throttled, flushed, sent = zip(*notes, strict=True)
        if min(counts) == max(counts) and min(versions) == max(versions):
            self.versions[int(versions[0])] += int(counts[0]) * len(counts)
        else:
            for version, count in zip(versions, counts, strict=True):
                self.versions[int(version)] += int(count)
        longest = {
            RequestPart.TOTAL: max(map(sub, sent, received)) / _UNIT_S,
            RequestPart.QUEUE: max(map(sub, begun, received)) / _UNIT_S,
            RequestPart.LOCAL: max(map(sub, worked, begun)) / _UNIT_S,
            RequestPart.REMOTE: max(map(sub, answered, worked)) / _UNIT_S,
            RequestPart.THROTTLE: max(throttled) / 1000 / _UNIT_S,
            RequestPart.RESPONSE_QUEUE: max(map(sub, flushed, answered)) / _UNIT_S,
            RequestPart.SEND: max(map(sub, sent, flushed)) / _UNIT_S,
            RequestPart.BYTES: max(sizes),
        }
        for part, value in longest.items():
            moments = self._moments[part]
            moments.max = max(moments.max, value)
        # Times are differences, so their sums are differences of sums.
        of = [sum(map(mul, counts, column)) for column in (received, begun, worked, answered, flushed, sent)]
        sums = self._sums
        sums[RequestPart.TOTAL] += of[5] - of[0]
        sums[RequestPart.QUEUE] += of[1] - of[0]
        sums[RequestPart.LOCAL] += of[2] - of[1]
        sums[RequestPart.REMOTE] += of[3] - of[2]
        sums[RequestPart.RESPONSE_QUEUE] += of[4] - of[3]
        sums[RequestPart.SEND] += of[5] - of[4]
        sums[RequestPart.THROTTLE] += sum(map(mul, counts, throttled)) / 1000
        sums[RequestPart.BYTES] += sum(map(mul, counts, sizes))
        self._weigh(notes[::stride], stride)
        notes.clear()

    def _weigh(self, notes: list[tuple[float, ...]], stride: int) -> None:
        self._decay()
        parts, spreads = self._weights.values(), self._moments.values()
        for _, count, size, received, begun, worked, answered, throttle_ms, flushed, sent in notes:
            weight = count * stride
            values = (
                (sent - received) / _UNIT_S,
                (begun - received) / _UNIT_S,
                (worked - begun) / _UNIT_S,
                (answered - worked) / _UNIT_S,
                throttle_ms / 1000 / _UNIT_S,
                (flushed - answered) / _UNIT_S,
                (sent - flushed) / _UNIT_S,
                size,
            )
            for value, weights, moments in zip(values, parts, spreads, strict=True):
                moments.min = min(moments.min, value)
                moments.weight += weight
                moments.total += weight * value
                moments.squares += weight * value * value
                step = int(math.log2(value) * _STEPS) + 1 if value > 1 else 0
                weights[step] = weights.get(step, 0.0) + weight

    def _decay(self) -> None:
        now = perf_counter()
        if now - self._decayed_at < 1:
            return
        share = 0.5 ** ((now - self._decayed_at) / _HALF_LIFE_S)
        self._decayed_at = now
        for part, weights in self._weights.items():
            # A thousandth of a request affects no quantile.
            self._weights[part] = {step: weight * share for step, weight in weights.items() if weight * share > 1e-3}


class RequestTimes:
    """The durations of all requests of a broker, by name. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._by_name: dict[str, NamedRequestTimes] = {}

    def of(self, name: str) -> NamedRequestTimes:
        """Return the durations of a name, created if needed."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = NamedRequestTimes()
        return found

    def items(self) -> Iterator[tuple[str, NamedRequestTimes]]:
        """Yield the names with requests and their aggregated durations, sorted."""
        for name, times in sorted(self._by_name.items()):
            times.settle()
            if times.versions:
                yield name, times


def _at_quantiles(weights: dict[int, float]) -> list[int]:
    """Return the steps at `QUANTILES`; zeros without weights."""
    left = sum(weights.values())
    found: list[int] = []
    below, at = 0.0, 0
    ascending = iter(sorted(weights.items()))
    for quantile in QUANTILES:
        while below < quantile * left:
            step = next(ascending, None)
            if step is None:
                break
            at, below = step[0], below + step[1]
        found.append(at)
    return found


def _value(step: int) -> float:
    return float(2 ** ((step - 0.5) / _STEPS)) if step else 0.0
