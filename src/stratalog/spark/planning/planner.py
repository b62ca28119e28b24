"""Plan the splits of a query from its options and pushed filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from stratalog.inspect import ByteSources, PlaceTier
from stratalog.log.index import AbortedTransaction
from stratalog.spark.model import Piece, SegmentRange, SplitPlan
from stratalog.spark.options import OnDataLoss, ReadOptions, on_data_loss
from stratalog.spark.planning.broker_ranges import BrokerRanges
from stratalog.spark.planning.compacted import explains
from stratalog.spark.planning.cutting import Cutter
from stratalog.spark.planning.filters import Constraints
from stratalog.spark.planning.index_access import IndexAccess
from stratalog.spark.planning.limits import LimitResolver, check_names_all
from stratalog.spark.planning.snapshot import PartitionSnapshot, SnapshotReader
from stratalog.spark.planning.splits import limit_records, narrow_by_time, needs_index, pack, within_time
from stratalog.spark.planning.stable import again_while_changing
from stratalog.spark.planning.tiers import holes
from stratalog.spark.planning.transactions import transaction_state

_SPLIT_BYTES_MIN: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class PartitionRead:
    snapshot: PartitionSnapshot
    ranges: tuple[SegmentRange, ...]
    aborted: tuple[AbortedTransaction, ...]


class Planner:
    """Plans one query. Use it once."""

    def __init__(
        self,
        options: ReadOptions,
        constraints: Constraints,
        byte_sources: ByteSources,
        indexes: IndexAccess | None = None,
        lost: OnDataLoss | None = None,
    ) -> None:
        self._options = options
        self._constraints = constraints
        self._byte_sources = byte_sources
        self._indexes = indexes or IndexAccess(byte_sources)
        self._lost = lost or on_data_loss(options.fail_on_data_loss)
        self._limits = LimitResolver(byte_sources, self._indexes, self._lost)
        self._broker = None if byte_sources.broker is None else BrokerRanges(byte_sources.cluster)

    def plan(self) -> list[SplitPlan]:
        """Return splits that together give every wanted record once. Raises StratalogError.

        If files are replaced during planning, it starts over.
        """
        return again_while_changing(
            lambda: Planner(self._options, self._constraints, self._byte_sources, lost=self._lost)._plan()
        )

    def _plan(self) -> list[SplitPlan]:
        constraints = self._constraints
        reader = SnapshotReader(self._options, self._byte_sources)
        subscribed = reader.discover(
            lambda topic, partition: topic in constraints.topics and partition in constraints.partitions
        )
        for limit in (self._options.starting, self._options.ending):
            check_names_all(limit, subscribed)
        return self.split([self._narrow(snapshot) for snapshot in reader.partitions()])

    def _narrow(self, snapshot: PartitionSnapshot) -> PartitionRead:
        """Apply starting and ending options, transactions and filters on offsets and time."""
        options = self._options
        aborted: tuple[AbortedTransaction, ...] = ()
        if options.read_committed:
            state = transaction_state(snapshot, self._byte_sources)
            aborted = state.aborted
            snapshot = replace(snapshot, end=state.last_stable_offset)
        return self.between(snapshot, *self._limits.batch(options, snapshot), aborted)

    def between(
        self, snapshot: PartitionSnapshot, start: int, end: int, aborted: tuple[AbortedTransaction, ...] = ()
    ) -> PartitionRead:
        """Return the offsets of [start, end) that pass the filters, and report those that no segment has."""
        for low, high in holes(
            snapshot.ranges, start, end, lambda before, after: explains(before, after, self._byte_sources)
        ):
            self._lost(f"{snapshot.topic}-{snapshot.partition}: no segment has the offsets from {low} to {high - 1}")
        ranges: list[SegmentRange] = []
        for low, high in self._constraints.offsets:
            ranges += snapshot.between(max(low, start), min(high + 1, end))
        return PartitionRead(snapshot, tuple(self._narrow_by_time(snapshot, ranges)), aborted)

    def _narrow_by_time(self, snapshot: PartitionSnapshot, ranges: list[SegmentRange]) -> list[SegmentRange]:
        times = self._constraints.timestamps_ms
        if not times:
            return []
        if times.is_everything:
            return ranges
        disorder_ms = self._options.timestamp_disorder_ms
        kept = within_time(ranges, times.low, times.high, disorder_ms)
        self._indexes.for_all([each.segment for each in kept], self._indexes.time_entries)
        narrowed: list[SegmentRange] = []
        for each in kept:
            if each.segment.tier is PlaceTier.BROKER and self._broker is not None:
                key = snapshot.topic, snapshot.partition
                narrowed += self._broker.within_time(key, each, times, disorder_ms)
                continue
            found = narrow_by_time(
                each,
                self._indexes.time_entries(each.segment),
                times.low,
                times.high,
                disorder_ms,
                partial(self._indexes.proves, each.segment),
            )
            narrowed += [] if found is None else [found]
        return narrowed

    def split(self, wanted: Sequence[PartitionRead]) -> list[SplitPlan]:
        """Cut into splits of `splitBytes`, or smaller ones, by bytes and then by offsets, to reach `minPartitions`."""
        options = self._options
        plans = self._split_by(wanted, options.split_bytes, options.max_records_per_partition)
        minimum = options.min_partitions
        if minimum is None or len(plans) >= minimum or not plans:
            return plans
        split_bytes = max(_SPLIT_BYTES_MIN, -(-sum(plan.size for plan in plans) // minimum))
        plans = self._split_by(wanted, split_bytes, options.max_records_per_partition)
        if len(plans) >= minimum:
            return plans
        records = sum(each.end - each.start for part in wanted for each in part.ranges)
        records_max = -(-records // minimum)
        if options.max_records_per_partition is not None:
            records_max = min(records_max, options.max_records_per_partition)
        return self._split_by(wanted, split_bytes, records_max)

    def _split_by(self, wanted: Sequence[PartitionRead], split_bytes: int, records_max: int | None) -> list[SplitPlan]:
        plans = []
        for part in wanted:
            ranges = list(limit_records(part.ranges, records_max))
            needing = [each.segment for each in ranges if needs_index(each, split_bytes)]
            self._indexes.for_all(list({each.log: each for each in needing}.values()), self._indexes.offset_entries)
            snapshot = part.snapshot
            pieces = [piece for each in ranges for piece in self._pieces(snapshot, each, split_bytes)]
            plans += pack(
                snapshot.topic,
                snapshot.partition,
                pieces,
                split_bytes,
                records_max,
                part.aborted,
                snapshot.topic_id,
            )
        return plans

    def _pieces(self, snapshot: PartitionSnapshot, wanted: SegmentRange, split_bytes: int) -> list[Piece]:
        if wanted.segment.tier is PlaceTier.BROKER and self._broker is not None:
            return self._broker.cut((snapshot.topic, snapshot.partition), wanted, split_bytes)
        copy = snapshot.copies.get(wanted.segment.log)
        return Cutter(self._byte_sources, self._indexes).cut(wanted, split_bytes, copy)
