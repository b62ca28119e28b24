"""`stratalog tier ls`: the topics, partitions and segments that a bucket holds, as they are read."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from stratalog.cli.missing import NothingFoundError, require_topics
from stratalog.cli.options import JsonLines, Topics
from stratalog.cli.out import on_terminal, print_json, print_rows, print_tabbed
from stratalog.cli.tier.data_dirs import DataDirOption, open_data_dirs
from stratalog.cli.tier.store import BucketOptions, say_empty, topics_in
from stratalog.cli.tier.times import time_ms, time_text
from stratalog.inspect import (
    PartitionMetadata,
    PartitionObjects,
    PartitionReader,
    SegmentObjects,
    find_partitions,
    group_objects,
)
from stratalog.jobs import size_text, terminal_progress, tracked
from stratalog.jobs.audit import MetadataState, misfits, state_of
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.storage import SegmentManifest
from stratalog.util import TableColumn, print_table, uuid_to_base64


class Level(enum.StrEnum):
    """Level of detail."""

    TOPICS = "topics"
    PARTITIONS = "partitions"
    SEGMENTS = "segments"


@dataclass(frozen=True, slots=True)
class Filter:
    """The segments to list. Both ends of a range are inclusive, None means no bound."""

    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def is_open(self) -> bool:
        return self == Filter()

    def takes(self, manifest: SegmentManifest, before_ms: int) -> bool:
        """`before_ms` is the largest timestamp of the segments before it: a manifest has no smallest one."""
        return (
            (self.from_offset is None or manifest.end_offset >= self.from_offset)
            and (self.to_offset is None or manifest.base_offset <= self.to_offset)
            and (self.from_ms is None or manifest.max_timestamp >= self.from_ms)
            and (self.to_ms is None or before_ms <= self.to_ms)
        )


@dataclass(frozen=True, slots=True)
class ListedSegment:
    """One line: a segment, its manifest where that can be read, and its state."""

    stored: SegmentObjects
    manifest: SegmentManifest | None
    state: str


def ls(
    bucket: BucketOptions,
    topic: Topics = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", min=0, help="Only this partition.")] = None,
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=0, help="Only segments that hold this offset or later ones.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="Only segments that hold this offset or earlier ones.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", metavar="TIME", help="Only segments with records of this time or later."),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="Only segments with records of this time or earlier."),
    ] = None,
    level: Annotated[Level, typer.Option("--level", help="Level of detail.")] = Level.SEGMENTS,
    data_dir: DataDirOption = None,
    as_json: JsonLines = False,
) -> int:
    """List the topics, partitions and segments in a bucket: offsets, times, sizes, states, leader epochs.

    A segment is 'complete' if its manifest and all of its objects exist. With --data-dir the state is that of the
    metadata. TIME is 2026-01-31, 2026-01-31T12:00Z or milliseconds. It is compared with the largest timestamp of each
    segment.

    \b
    Examples:
      stratalog tier ls s3://bucket/tiered --level topics
      stratalog tier ls s3://bucket/tiered --topic flights --partition 3 --from-offset 4711
      stratalog tier ls s3://bucket/tiered --from-time 2026-01-31 --json
    """
    url = bucket.given_url
    wanted = Filter(
        from_offset,
        to_offset,
        None if from_time is None else time_ms(from_time, "--from-time"),
        None if to_time is None else time_ms(to_time, "--to-time"),
    )
    store = bucket.open()
    require_topics(topic, lambda: topics_in(store), url)
    known = _metadata(data_dir)
    found = find_partitions(store, topic)
    partitions = [one for one in found.partitions if not partition or one.partition in partition]
    if not found.partitions:
        say_empty(url)
    elif not partitions:
        raise NothingFoundError(f"{url}: no partition {', '.join(map(str, partition or ()))}")
    with PartitionReader(store) as reader:
        if level is Level.SEGMENTS:
            for stored in reader.read_all(partitions):
                _print_segments(stored, list(_segments(stored, wanted, known)), as_json=as_json)
        else:
            read = tracked(reader.read_all(partitions), "reading", len(partitions), terminal_progress())
            rows = _sums(read, wanted, known, by_topic=level is Level.TOPICS)
            _print_sums(rows, as_json=as_json)
    return 0


def _metadata(data_dirs: list[Path] | None) -> dict[TopicIdPartition, PartitionMetadata]:
    found = open_data_dirs(data_dirs)
    known: dict[TopicIdPartition, PartitionMetadata] = {}
    for replayed in found.replay() if found is not None else ():
        known |= replayed
    return known


def _segments(
    stored: PartitionObjects, wanted: Filter, known: dict[TopicIdPartition, PartitionMetadata]
) -> Iterator[ListedSegment]:
    """Yield segments by start offset. Those without a manifest have no end offset and time, and pass no filter."""
    sets, _ = group_objects(stored.objects)
    metadata = known.get(stored.partition)
    before_ms = -1
    for segment_id, objects in sorted(sets.items(), key=lambda item: item[1].start_offset):
        manifest = stored.manifests.get(segment_id)
        if isinstance(manifest, SegmentManifest):
            if wanted.takes(manifest, before_ms):
                yield ListedSegment(objects, manifest, _state(segment_id, objects, manifest, metadata))
            before_ms = max(before_ms, manifest.max_timestamp)
        elif wanted.is_open:
            yield ListedSegment(objects, None, _state(segment_id, objects, None, metadata))


def _state(
    segment_id: UUID,
    stored: SegmentObjects,
    manifest: SegmentManifest | None,
    metadata: PartitionMetadata | None,
) -> str:
    state = state_of(segment_id, metadata)
    if state not in (MetadataState.UNKNOWN, MetadataState.ABSENT):
        return str(state.value)
    if manifest is None:
        return "replaced" if stored.is_replaced else "incomplete"
    whole = next(misfits(stored, manifest), None) is None
    return ("complete" if whole else "damaged") + (" (unreferenced)" if state is MetadataState.ABSENT else "")


_COLUMNS = (
    TableColumn("offsets"),
    TableColumn("largest time (UTC)"),
    TableColumn("size", is_number=True),
    TableColumn("objects", 3, is_number=True),
    TableColumn("state"),
    TableColumn("epochs", 1),
    TableColumn("copied (UTC)", 2),
    TableColumn("segment id"),
)


def _print_segments(stored: PartitionObjects, segments: list[ListedSegment], *, as_json: bool) -> None:
    partition = stored.partition
    if as_json:
        for one in segments:
            print_json(_json(one))
    elif on_terminal():
        if segments:
            title = f"{partition.topic}-{partition.partition}  (topic id {uuid_to_base64(partition.topic_id)})"
            print_table(_COLUMNS, [_cells(one, size_text) for one in segments], title)
            print()
    else:
        for one in segments:
            print_tabbed(f"{partition.topic}-{partition.partition}", *_cells(one, str))


def _cells(one: ListedSegment, size: Any) -> tuple[str, ...]:
    manifest, stored = one.manifest, one.stored
    segment_id = uuid_to_base64(stored.segment_id.id)
    if manifest is None:
        return (
            f"{stored.start_offset}-?",
            "",
            size(stored.bytes),
            str(len(stored.objects)),
            one.state,
            "",
            "",
            segment_id,
        )
    return (
        f"{manifest.base_offset}-{manifest.end_offset}",
        time_text(manifest.max_timestamp),
        size(manifest.segment_size_in_bytes),
        str(len(stored.objects)),
        one.state,
        ",".join(str(epoch) for epoch in sorted(manifest.leader_epochs)),
        time_text(manifest.event_timestamp),
        segment_id,
    )


def _json(one: ListedSegment) -> dict[str, object]:
    manifest, stored = one.manifest, one.stored
    partition = stored.segment_id.topic_id_partition
    found: dict[str, object] = {
        "topic": partition.topic,
        "topicId": uuid_to_base64(partition.topic_id),
        "partition": partition.partition,
        "segmentId": uuid_to_base64(stored.segment_id.id),
        "state": one.state,
        "baseOffset": stored.start_offset,
        "endOffset": None if manifest is None else manifest.end_offset,
        "bytes": None if manifest is None else manifest.segment_size_in_bytes,
        "objects": {suffix: info.size for suffix, info in stored.objects.items()},
    }
    if manifest is not None:
        found |= {
            "maxTimestamp": manifest.max_timestamp,
            "leaderEpochs": [[epoch, start] for epoch, start in sorted(manifest.leader_epochs.items())],
            "copiedAt": manifest.event_timestamp,
            "brokerId": manifest.broker_id,
            "layout": manifest.layout.value,
            "compression": manifest.compression.value,
            "encryptionKey": None if manifest.encryption is None else manifest.encryption.key_id,
            "offsetIndexEntrySize": manifest.offset_index_entry_size,
        }
    return found


# --- topics and partitions --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sum:
    topic: str
    topic_id: UUID
    partition: int | None
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None
    largest_ms: int = -1

    def add(self, segments: list[ListedSegment]) -> None:
        self.partitions += 1
        for one in segments:
            self.segments += 1
            self.bytes += one.stored.bytes
            if one.manifest is not None:
                base, end = one.manifest.base_offset, one.manifest.end_offset
                self.first = base if self.first is None else min(self.first, base)
                self.last = end if self.last is None else max(self.last, end)
                self.largest_ms = max(self.largest_ms, one.manifest.max_timestamp)


def _sums(
    read: Iterable[PartitionObjects],
    wanted: Filter,
    known: dict[TopicIdPartition, PartitionMetadata],
    *,
    by_topic: bool,
) -> list[_Sum]:
    found: dict[tuple[UUID, int | None], _Sum] = {}
    for stored in read:
        one = stored.partition
        number = None if by_topic else one.partition
        target = found.setdefault((one.topic_id, number), _Sum(one.topic, one.topic_id, number))
        target.add(list(_segments(stored, wanted, known)))
    return list(found.values())


def _print_sums(rows: list[_Sum], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print_json(
                {
                    "topic": row.topic,
                    "topicId": uuid_to_base64(row.topic_id),
                    "partition": row.partition,
                    "partitions": row.partitions,
                    "segments": row.segments,
                    "bytes": row.bytes,
                    "firstOffset": None if row.partition is None else row.first,
                    "lastOffset": None if row.partition is None else row.last,
                    "maxTimestamp": row.largest_ms,
                }
            )
        return
    size = size_text if on_terminal() else str
    by_topic = bool(rows) and rows[0].partition is None
    lines = [
        (
            row.topic,
            uuid_to_base64(row.topic_id),
            str(row.partitions if by_topic else row.partition),
            str(row.segments),
            size(row.bytes),
            "" if by_topic else _range(row),
            time_text(row.largest_ms),
        )
        for row in rows
    ]
    columns = (
        TableColumn("topic"),
        TableColumn("topic id", 2),
        TableColumn("partitions" if by_topic else "partition", is_number=True),
        TableColumn("segments", is_number=True),
        TableColumn("size", is_number=True),
        TableColumn("offsets", 1),
        TableColumn("largest time (UTC)"),
    )
    print_rows(columns, lines)


def _range(row: _Sum) -> str:
    return "" if row.first is None else f"{row.first}-{row.last}"
