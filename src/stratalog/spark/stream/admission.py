"""Divide the limits of a trigger among the partitions of a micro-batch. Pure.

The rules for numbers of records are exactly those of Spark's Kafka source: a partition's share of
`maxOffsetsPerTrigger` is in proportion to its lag, rounded down, but at least one record; a partition without new
records stays where it is. `maxBytesPerTrigger` is shared in the same way by waiting bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.spark.options import TopicPartition
from stratalog.spark.stream.offsets import Offsets


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Limits of one trigger; None for none. `delay_max_ms`: for how long `offsets_min` may hold records back."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    bytes_max: int | None = None
    delay_max_ms: int = 15 * 60 * 1000

    @property
    def any(self) -> bool:
        return not (self.offsets_max is None and self.offsets_min is None and self.bytes_max is None)


def total_lag(start: Offsets, latest: Offsets) -> int:
    """Return the offsets between the two, of all partitions of `latest`. A partition without a start counts from 0."""
    return sum(end - start.get(key, 0) for key, end in latest.items())


def must_wait(limits: TriggerLimits, waiting: int, since_last_ms: int) -> bool:
    """Return whether `offsets_min` holds the batch back: too few offsets wait, and the maximum delay is not over."""
    return limits.offsets_min is not None and since_last_ms < limits.delay_max_ms and waiting < limits.offsets_min


def shares(limit: int, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return parts of `limit` in proportion to the waiting offsets, at least 1 for each partition that has any."""
    total = float(sum(waiting.values()))
    found = {}
    for key, size in waiting.items():
        share = limit * (size / total)
        found[key] = math.ceil(share) if share < 1 else math.floor(share)
    return found


def limited_by_offsets(limit: int, begin: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Return the end of a batch of about `limit` offsets; `begin` has every partition of `latest`.

    A partition that ends before its begin gets its latest offset; that loss is reported elsewhere.
    """
    waiting = {key: end - begin[key] for key, end in latest.items() if end > begin[key]}
    taken = shares(limit, waiting)
    return {key: min(end, begin[key] + taken[key]) if key in taken else end for key, end in latest.items()}
