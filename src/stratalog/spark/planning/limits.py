"""Resolve starting and ending options to offsets of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from typing_extensions import Buffer

from stratalog.errors import UsageError
from stratalog.inspect import ByteSources
from stratalog.records import RecordBatch, walk
from stratalog.spark.model import SegmentRange
from stratalog.spark.options import EARLIEST, LATEST, Limit, LimitKind, ReadOptions, TopicPartition
from stratalog.spark.planning.broker_view import first_offset_at
from stratalog.spark.planning.index_access import IndexAccess
from stratalog.spark.planning.snapshot import PartitionSnapshot

_WINDOW_BYTES = 256 * 1024


def check_names_all(limit: Limit, subscribed: frozenset[TopicPartition]) -> None:
    """Raise UsageError unless limits by partition name exactly the subscribed partitions, as in Spark's source."""
    if limit.kind not in (LimitKind.OFFSETS, LimitKind.TIMESTAMPS):
        return
    for what, keys in (
        ("does not name", subscribed - limit.by_partition.keys()),
        ("names unknown", limit.by_partition.keys() - subscribed),
    ):
        if keys:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys))
            raise UsageError(
                f"option {limit.option} {what} {names}; it must name all partitions that are read, and no other"
            )


class LimitResolver:
    """Resolves limits against snapshots; reads indexes and a few batches for timestamps."""

    def __init__(self, byte_sources: ByteSources, indexes: IndexAccess, on_data_loss: Callable[[str], None]) -> None:
        self._byte_sources = byte_sources
        self._indexes = indexes
        self._lost = on_data_loss

    def batch(self, options: ReadOptions, snapshot: PartitionSnapshot) -> tuple[int, int]:
        """Return the offsets [start, end) of a batch.

        Raises UsageError if it would begin after its end, as in Spark's source.
        """
        end = self.end(options.ending, snapshot)
        starting = options.starting
        asked = starting.by_partition.get((snapshot.topic, snapshot.partition), EARLIEST)
        if starting.kind is LimitKind.OFFSETS and asked > end:
            raise self._behind(options, snapshot, asked, end)
        start = self.start(starting, snapshot, latest_if_none=options.timestamp_strategy_is_latest)
        if start > end and (starting.kind is not LimitKind.OFFSETS or asked == EARLIEST):
            raise self._behind(options, snapshot, start, end)
        return start, end

    def _behind(self, options: ReadOptions, snapshot: PartitionSnapshot, start: int, end: int) -> UsageError:
        return UsageError(
            f"option {options.starting.option}: {snapshot.topic}-{snapshot.partition} would begin at offset {start}, "
            f"which is past {end}, where {options.ending.option} ends"
        )

    def start(self, limit: Limit, snapshot: PartitionSnapshot, *, latest_if_none: bool) -> int:
        """Return the first offset to read.

        Raises UsageError if no record is as new as a timestamp (see `latest_if_none`).
        """
        name = f"{snapshot.topic}-{snapshot.partition}"
        match limit.kind:
            case LimitKind.EARLIEST:
                return snapshot.log_start
            case LimitKind.OFFSETS:
                offset = limit.by_partition[snapshot.topic, snapshot.partition]
                if offset == EARLIEST:
                    return snapshot.log_start
                if offset < snapshot.log_start:
                    self._lost(f"{name}: offset {offset} is gone; the log begins at {snapshot.log_start}")
                elif offset > snapshot.end:
                    self._lost(f"{name}: offset {offset} does not exist; the log ends at {snapshot.end}")
                return min(max(offset, snapshot.log_start), snapshot.end)
            case _:
                timestamp_ms = _timestamp(limit, snapshot)
                offset_found = self.first_offset_at(snapshot, timestamp_ms)
                if offset_found is None and not latest_if_none:
                    raise UsageError(
                        f"option {limit.option}: no record of {name} has timestamp {timestamp_ms} or a later one; "
                        "startingOffsetsByTimestampStrategy=latest would read nothing from it"
                    )
                return snapshot.end if offset_found is None else offset_found

    def end(self, limit: Limit, snapshot: PartitionSnapshot) -> int:
        """Return the offset before which reading ends."""
        name = f"{snapshot.topic}-{snapshot.partition}"
        match limit.kind:
            case LimitKind.LATEST:
                return snapshot.end
            case LimitKind.OFFSETS:
                offset = limit.by_partition[snapshot.topic, snapshot.partition]
                if offset == LATEST:
                    return snapshot.end
                if offset > snapshot.end:
                    self._lost(f"{name}: offset {offset} does not exist; the log ends at {snapshot.end}")
                return min(offset, snapshot.end)
            case _:
                found = self.first_offset_at(snapshot, _timestamp(limit, snapshot))
                return snapshot.end if found is None else found

    def first_offset_at(self, snapshot: PartitionSnapshot, timestamp_ms: int) -> int | None:
        """Return the first offset with this timestamp or a later one, or None (Kafka's `offsetsForTimes`)."""
        if self._byte_sources.broker is not None:
            key = snapshot.topic, snapshot.partition
            offset = first_offset_at(self._byte_sources.cluster, key, timestamp_ms)
            return None if offset is None or offset >= snapshot.end else max(offset, snapshot.log_start)
        for each in snapshot.ranges:
            newest = each.segment.max_timestamp_ms
            if newest is not None and newest < timestamp_ms:
                continue
            found = self._first_in(each, timestamp_ms)
            if found is not None:
                return found
        return None

    def _first_in(self, wanted: SegmentRange, timestamp_ms: int) -> int | None:
        start = wanted.start
        times = self._indexes.time_entries(wanted.segment)
        before = int(np.searchsorted(times.timestamps_ms, timestamp_ms, side="left")) - 1
        if before >= 0:
            entry = int(times.timestamps_ms[before]), int(times.offsets[before])
            if self._indexes.proves(wanted.segment, *entry):
                start = max(start, entry[1] + 1)
        for batch in self._batches(wanted, start):
            if batch.max_timestamp < timestamp_ms or batch.is_control or batch.next_offset <= start:
                continue
            batch.ensure_valid()
            for record in batch.records():
                if record.timestamp_ms >= timestamp_ms and start <= record.offset < wanted.end:
                    return record.offset
        return None

    def _batches(self, wanted: SegmentRange, start: int) -> Iterator[RecordBatch]:
        """Yield the batches of a segment from at or before `start`, read in growing windows."""
        segment = wanted.segment
        window = _WINDOW_BYTES

        def read(size: int, position: int) -> Buffer:
            nonlocal window
            end = min(position + max(size, window), segment.size)
            window *= 2
            return self._byte_sources.read_range(segment.log, position, end)

        start_position = self._indexes.offset_entries(segment).position_before(start)
        for _, batch in walk(read, segment.size, start=start_position, name=segment.log):
            yield batch


def _timestamp(limit: Limit, snapshot: PartitionSnapshot) -> int:
    if limit.kind is LimitKind.TIMESTAMP:
        return limit.timestamp_ms
    return limit.by_partition[snapshot.topic, snapshot.partition]
