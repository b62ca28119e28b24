"""Plan reads through a broker: the bytes of an offset, where to cut, and which offsets a filter on time needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from stratalog.errors import KafkaError
from stratalog.records import STOP, walk
from stratalog.spark.model import Piece, SegmentRange
from stratalog.spark.options import TopicPartition
from stratalog.spark.planning.broker_view import first_offset_at
from stratalog.spark.planning.intervals import Intervals
from stratalog.wire.client import Cluster

_SAMPLE_BYTES: Final = 128 * 1024
#: Fewer offsets than this are not worth a second task, nor a request for their size.
_OFFSETS_MIN: Final = 10_000


@dataclass(slots=True)
class BrokerRanges:
    """Asks a cluster on behalf of one plan. Raises UnreachableError, KafkaError."""

    cluster: Cluster
    _bytes_per_offset: dict[TopicPartition, float] = field(default_factory=dict)

    def cut(self, key: TopicPartition, wanted: SegmentRange, split_bytes: int) -> list[Piece]:
        """Cut the range into pieces of about `split_bytes`, estimated from a sample of the first records."""
        size = int(self._size_of_one(key, wanted) * (wanted.end - wanted.start))
        parts = max(1, min(-(-size // split_bytes), wanted.end - wanted.start))
        edges = [wanted.start + (wanted.end - wanted.start) * i // parts for i in range(parts + 1)]
        return [
            Piece(
                log=wanted.segment.log,
                start_position=0,
                end_position=size // parts,
                start=start,
                end=end,
                base_min=start,
                base_end=end,
            )
            for start, end in pairwise(edges)
        ]

    def _size_of_one(self, key: TopicPartition, wanted: SegmentRange) -> float:
        """Return the bytes that an offset takes in the log, or 0 where the size does not matter."""
        return 0.0 if wanted.end - wanted.start < _OFFSETS_MIN else self.bytes_per_offset(key, wanted)

    def bytes_per_offset(self, key: TopicPartition, wanted: SegmentRange) -> float:
        """Return the bytes of an offset in the log, estimated from the first records; 0 if there are none."""
        if key not in self._bytes_per_offset:
            try:
                records = self.cluster.fetch(*key, wanted.start, _SAMPLE_BYTES, max_wait_ms=0).records
                sample = list(walk(lambda size, at: records[at : at + size], len(records), on_damage=STOP))
                offsets = sample[-1][1].next_offset - sample[0][1].base_offset if sample else 0
            except KafkaError:  # deleted, or an error that reading will report
                return 0.0
            end = sample[-1][0] + sample[-1][1].size if sample else 0
            self._bytes_per_offset[key] = end / offsets if offsets > 0 else 0.0
        return self._bytes_per_offset[key]

    def within_time(
        self, key: TopicPartition, wanted: SegmentRange, times: Intervals, disorder_ms: int | None
    ) -> Iterator[SegmentRange]:
        """Yield the range, or nothing, without offsets at its ends that cannot have one of these times."""
        start, end = wanted.start, wanted.end
        if times.low > 0:
            first = first_offset_at(self.cluster, key, times.low)
            start = end if first is None else max(start, first)
        if disorder_ms is not None and times.high >= 0:
            behind = first_offset_at(self.cluster, key, times.high + disorder_ms + 1)
            end = end if behind is None else min(end, behind)
        if start < end:
            yield replace(wanted, start=start, end=end)
