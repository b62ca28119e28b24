"""How long requests took, by the name of the request: Kafka's RequestMetrics.

A connection notes a few clock readings a request, or once for a run of requests that were answered together. They are
counted when there are many of them or when they are read. So a request costs about a microsecond.

Quantiles are of the last minutes: what is older weighs less, as in Kafka. They are right within 5 %. When there are
many requests, each eighth of them stands for all; counts and sums are exact all the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from operator import mul, sub
from time import perf_counter
from typing import Final, NamedTuple

#: As many notes are counted together, of which only some are looked at for the quantiles.
_NOTES_MAX: Final = 512
_STRIDE: Final = 8
#: What is this old weighs half.
_HALF_LIFE_S: Final = 46.0
#: Steps in which values double, so that neighbours differ by 9 %.
_STEPS: Final = 8
#: Seconds are counted in units of this, so that what is below has the value 0.
_UNIT_S: Final = 1e-6
#: Kafka's, in JMX.
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class RequestPart(Enum):
    """What is measured of a request; the value is Kafka's name for it. All but the size in milliseconds."""

    TOTAL = "TotalTimeMs"
    QUEUE = "RequestQueueTimeMs"
    LOCAL = "LocalTimeMs"
    REMOTE = "RemoteTimeMs"
    THROTTLE = "ThrottleTimeMs"
    RESPONSE_QUEUE = "ResponseQueueTimeMs"
    SEND = "ResponseSendTimeMs"
    BYTES = "RequestBytes"


class RequestNote(NamedTuple):
    """Readings of `perf_counter` for requests that were answered together, without those of their sending."""

    version: int
    requests: int
    #: Of the requests on the average.
    size: float
    received: float
    begun: float
    #: When the broker had done its own part.
    worked: float
    #: When the answer was there: later than `worked` if it had to wait for something else.
    answered: float
    throttle_ms: float = 0.0


class Summary(NamedTuple):
    """Values of one part so far, in all; and of the last minutes those at `QUANTILES`."""

    requests: int
    total: float
    quantiles: tuple[float, ...]


class NamedRequestTimes:
    """Of the requests of one name. Belongs to the loop's thread."""

    __slots__ = ("_decayed_at", "_notes", "_sums", "_weights", "max_ms", "versions")

    def __init__(self) -> None:
        self._notes: list[tuple[float, ...]] = []
        self._sums = dict.fromkeys(RequestPart, 0.0)
        self._weights: dict[RequestPart, dict[int, float]] = {part: {} for part in RequestPart}
        self._decayed_at = perf_counter()
        #: How many there were of each version; as of the last `settle`, like `max_ms`.
        self.versions: Counter[int] = Counter()
        #: The longest time that one took in all.
        self.max_ms = 0.0

    def add(self, note: RequestNote, flushed: float, sent: float) -> None:
        """Count requests whose answers were sent between the last two readings."""
        notes = self._notes
        notes.append((*note, flushed, sent))
        if len(notes) >= _NOTES_MAX:
            self._settle(_STRIDE)

    def settle(self) -> None:
        """Bring all figures up to date."""
        self._settle(1)

    def summary(self, part: RequestPart) -> Summary:
        """Return the figures of a part, as of the last `settle`."""
        count, total, weights = self.versions.total(), self._sums[part], self._weights[part]
        if part is RequestPart.BYTES:
            return Summary(count, total, tuple(map(_value, _at_quantiles(weights))))
        at = _at_quantiles(weights)
        return Summary(count, total * 1000, tuple(_value(step) * _UNIT_S * 1000 for step in at))

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
        self.max_ms = max(self.max_ms, max(map(sub, sent, received)) * 1000)
        # Times are differences, and so are their sums.
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
        parts = self._weights.values()
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
            for value, weights in zip(values, parts, strict=True):
                step = int(math.log2(value) * _STEPS) + 1 if value > 1 else 0
                weights[step] = weights.get(step, 0.0) + weight

    def _decay(self) -> None:
        now = perf_counter()
        if now - self._decayed_at < 1:
            return
        share = 0.5 ** ((now - self._decayed_at) / _HALF_LIFE_S)
        self._decayed_at = now
        for part, weights in self._weights.items():
            # What is a thousandth of one request is no longer seen by any quantile.
            self._weights[part] = {step: weight * share for step, weight in weights.items() if weight * share > 1e-3}


class RequestTimes:
    """Of all requests of a broker, by name. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._by_name: dict[str, NamedRequestTimes] = {}

    def of(self, name: str) -> NamedRequestTimes:
        """Return those of a name, which need not have been used."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = NamedRequestTimes()
        return found

    def items(self) -> Iterator[tuple[str, NamedRequestTimes]]:
        """Yield what there were requests of, up to date and in the order of their names."""
        for name, times in sorted(self._by_name.items()):
            times.settle()
            if times.versions:
                yield name, times


def _at_quantiles(weights: dict[int, float]) -> list[int]:
    """Return the steps at `QUANTILES`; of nothing, zeros."""
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
    """Return the middle of a step."""
    return float(2 ** ((step - 0.5) / _STEPS)) if step else 0.0
