"""Find where a stream without a checkpoint begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.spark.options import LATEST, LimitKind, ReadOptions, TopicPartition
from stratalog.spark.planning import LimitResolver, PartitionSnapshot, check_names_all


@dataclass(frozen=True, slots=True)
class Initial:
    """First offsets. `at_end` has the partitions that begin at the current end of their log.

    Such an offset cannot be found again. So these partitions are not read until a checkpoint has it.
    """

    offsets: Mapping[TopicPartition, int]
    at_end: frozenset[TopicPartition]


def initial_offsets(
    options: ReadOptions, partitions: Mapping[TopicPartition, PartitionSnapshot], resolver: LimitResolver
) -> Initial:
    """Return the first offsets of these partitions by the starting options. Raises UsageError if they do not match."""
    check_names_all(options.starting, frozenset(partitions))
    offsets = {key: _first(options, snapshot, resolver) for key, snapshot in partitions.items()}
    at_end = frozenset(
        key
        for key, offset in offsets.items()
        if offset == partitions[key].end and options.starting.kind is not LimitKind.EARLIEST
    )
    return Initial(offsets, at_end)


def _first(options: ReadOptions, snapshot: PartitionSnapshot, resolver: LimitResolver) -> int:
    limit = options.starting
    if limit.kind is LimitKind.LATEST:
        return snapshot.end
    if limit.kind is LimitKind.OFFSETS and limit.by_partition[snapshot.topic, snapshot.partition] == LATEST:
        return snapshot.end
    return resolver.start(limit, snapshot, latest_if_none=options.timestamp_strategy_is_latest)
