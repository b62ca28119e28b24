"""The offsets that a run exports: of every subscribed partition, from the end of the last run to the end of the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from stratalog.errors import UsageError
from stratalog.inspect import ByteSources
from stratalog.spark.export.commits import OffsetRange
from stratalog.spark.options import Limit, LimitKind, ReadOptions, TopicPartition, by_topic, on_data_loss
from stratalog.spark.planning import (
    IndexAccess,
    LimitResolver,
    PartitionSnapshot,
    SnapshotReader,
    again_while_changing,
    transaction_state,
)
from stratalog.util import uuid_to_base64

#: Options that select offsets. Each query of an export gets its own.
_SUBSCRIPTION: Final = ("subscribe", "subscribepattern", "assign")
_LIMITS: Final = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets", "endingtimestamp")
_MORE_LIMITS: Final = ("endingoffsetsbytimestamp", "endingoffsets", "startingoffsetsbytimestampstrategy")
#: The columns are the table's.
_COLUMNS: Final = ("columns",)
_TOPIC_ID: Final = "topicId"


class ExportableRanges(NamedTuple):
    """The offsets to export, and the ids of their topics as far as known."""

    ranges: tuple[OffsetRange, ...]
    topic_ids: frozenset[UUID]

    def only_of_them(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return options that read only these topics, even if another topic gets one of their names later."""
        kept = {name: value for name, value in options.items() if name.lower() != _TOPIC_ID.lower()}
        ids = ",".join(sorted(map(uuid_to_base64, self.topic_ids)))
        return {**kept, _TOPIC_ID: ids} if ids else dict(options)


def new_ranges(options: Mapping[str, str], done: Mapping[TopicPartition, int]) -> ExportableRanges:
    """Return the offsets to export, by topic and partition. Partitions without new ones are left out.

    Starting options apply to partitions that were never exported. Raises UsageError, and DataLossError where the next
    offsets were deleted (with `failOnDataLoss=false` they are skipped).
    """
    parsed = ReadOptions.parse(options)
    byte_sources = ByteSources.of(parsed)

    def look() -> ExportableRanges:
        resolver = LimitResolver(byte_sources, IndexAccess(byte_sources), on_data_loss(parsed.fail_on_data_loss))
        reader = SnapshotReader(parsed, byte_sources)
        reader.discover(lambda _topic, _partition: True)
        there = reader.partitions()
        ranges = (_range(parsed, byte_sources, resolver, snapshot, done) for snapshot in there)
        return ExportableRanges(
            tuple(each for each in ranges if each.start < each.end),
            frozenset(each.topic_id for each in there if each.topic_id is not None),
        )

    try:
        return again_while_changing(look)
    finally:
        byte_sources.close()


def _range(
    options: ReadOptions,
    byte_sources: ByteSources,
    resolver: LimitResolver,
    snapshot: PartitionSnapshot,
    done: Mapping[TopicPartition, int],
) -> OffsetRange:
    key = snapshot.topic, snapshot.partition
    if options.read_committed:
        snapshot = replace(snapshot, end=transaction_state(snapshot, byte_sources).last_stable_offset)
    end = resolver.end(options.ending, snapshot)
    if key in done:
        if end < done[key] <= snapshot.end:
            return OffsetRange(*key, done[key], done[key])  # the ending option is before the end of the last run
        limit = Limit(LimitKind.OFFSETS, "startingOffsets", by_partition={key: done[key]})
        start = resolver.start(limit, snapshot, latest_if_none=True)
        if start < done[key]:
            return OffsetRange(*key, done[key], done[key])  # the loss was reported; nothing is exported twice
        return OffsetRange(*key, start, max(start, end))
    limit = options.starting
    if limit.kind in (LimitKind.OFFSETS, LimitKind.TIMESTAMPS) and key not in limit.by_partition:
        raise UsageError(
            f"option {limit.option} does not name {key[0]}-{key[1]}, which was never exported; it must name what is new"
        )
    start = resolver.start(limit, snapshot, latest_if_none=options.timestamp_strategy_is_latest)
    return OffsetRange(*key, start, max(start, end))


def steps(ranges: Sequence[OffsetRange], offsets_max: int | None) -> Iterator[tuple[OffsetRange, ...]]:
    """Yield the ranges of each commit, with at most `offsets_max` offsets of a partition. Pure."""
    left = [each for each in ranges if each.start < each.end]
    while left:
        if offsets_max is None:
            yield tuple(left)
            return
        yield tuple(replace(each, end=min(each.end, each.start + offsets_max)) for each in left)
        left = [replace(each, start=each.start + offsets_max) for each in left]
        left = [each for each in left if each.start < each.end]


def reading_options(options: Mapping[str, str], ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """Return options of the source that read exactly these ranges. Pure."""
    replaced = {*_SUBSCRIPTION, *_LIMITS, *_MORE_LIMITS, *_COLUMNS}
    kept = {name: value for name, value in options.items() if name.lower() not in replaced}
    starts = by_topic({each.key: each.start for each in ranges})
    ends = by_topic({each.key: each.end for each in ranges})
    assigned = {topic: [int(partition) for partition in partitions] for topic, partitions in starts.items()}
    return kept | {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
