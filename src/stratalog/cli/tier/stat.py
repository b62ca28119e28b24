"""`stratalog tier stat`: sums over a bucket, by topic or partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID

import typer

from stratalog.cli.missing import require_topics
from stratalog.cli.options import JsonLines, Topics
from stratalog.cli.out import on_terminal, print_json, print_tabbed
from stratalog.cli.tier.store import BucketOptions, say_empty, topics_in
from stratalog.cli.tier.times import time_text
from stratalog.errors import (
    CorruptRecordError,
    DamagedRemoteObjectError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from stratalog.inspect import PartitionObjects, PartitionReader, find_partitions, group_objects
from stratalog.jobs import size_text, terminal_progress, tracked
from stratalog.records import HEADER_SIZE, batch_at
from stratalog.remote.storage import ObjectKind, ObjectStore, SegmentManifest
from stratalog.remote.storage.aiven import keys as aiven_keys
from stratalog.util import TableColumn, print_table, uuid_to_base64

_DAY_MS = 86_400_000
#: Records that span less time than this do not show the growth of a day.
_GROWTH_SPAN_MS = 3_600_000


@dataclass(slots=True)
class TierStat:
    """Sums of a topic or partition. Times are those of records, in milliseconds, -1 if there are none."""

    topic: str
    topic_id: UUID
    partition: int | None
    partitions: int = 0
    segments: int = 0
    incomplete: int = 0
    bytes_by_kind: Counter[str] = field(default_factory=Counter)
    other_bytes: int = 0
    oldest_ms: int = -1
    newest_ms: int = -1
    codecs: set[str] = field(default_factory=set)
    index_formats: set[str] = field(default_factory=set)
    layouts: set[str] = field(default_factory=set)

    @property
    def bytes(self) -> int:
        return self.bytes_by_kind.total() + self.other_bytes

    @property
    def bytes_per_day(self) -> int | None:
        """Growth by the time that the records span, None if that is too short."""
        span = self.newest_ms - self.oldest_ms
        if self.oldest_ms < 0 or span < _GROWTH_SPAN_MS:
            return None
        return self.bytes_by_kind[ObjectKind.LOG.value] * _DAY_MS // span

    def add(self, stored: PartitionObjects, first: _Sample | None, last: _Sample | None) -> None:
        """One partition, with a look at the beginning of its first and last segment."""
        self.partitions += 1
        complete = stored.complete
        self.segments += len(complete)
        sets, foreign = group_objects(stored.objects)
        self.other_bytes += sum(info.size for info in foreign)
        for objects in sets.values():
            self.bytes_by_kind.update({suffix: info.size for suffix, info in objects.objects.items()})
        self.incomplete += len(sets) - len(complete) - sum(objects.is_replaced for objects in sets.values())
        for manifest in complete:
            self.layouts.add(manifest.layout.value)
            self.newest_ms = max(self.newest_ms, manifest.max_timestamp)
            if manifest.offset_index_entry_size is not None:
                self.index_formats.add(str(manifest.offset_index_entry_size))
        oldest = first.timestamp_ms if first is not None else -1
        if oldest >= 0:
            self.oldest_ms = oldest if self.oldest_ms < 0 else min(self.oldest_ms, oldest)
        self.codecs |= {sample.codec for sample in (first, last) if sample is not None}


@dataclass(frozen=True, slots=True)
class _Sample:
    """Facts from the first batch of a segment."""

    timestamp_ms: int
    codec: str


def stat(
    bucket: BucketOptions,
    topic: Topics = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Print a line for each partition instead of each topic.")
    ] = False,
    as_json: JsonLines = False,
) -> int:
    """Sum up a bucket: segments, bytes by kind of object, oldest and newest record, codecs, growth per day.

    The oldest record and the codecs are those of the first batch in each partition's first and last segment. Growth
    is the bytes of records divided by the time that they span.

    \b
    Examples:
      stratalog tier stat s3://bucket/tiered
      stratalog tier stat s3://bucket/tiered --topic flights --partitions --json
    """
    url = bucket.given_url
    store = bucket.open()
    require_topics(topic, lambda: topics_in(store), url)
    found = find_partitions(store, topic).partitions
    if not found:
        say_empty(url)
    stats: dict[tuple[UUID, int | None], TierStat] = {}
    with PartitionReader(store) as reader:
        for stored in tracked(reader.read_all(found), "reading", len(found), terminal_progress()):
            one = stored.partition
            number = one.partition if partitions else None
            target = stats.setdefault((one.topic_id, number), TierStat(one.topic, one.topic_id, number))
            target.add(stored, *_samples(store, stored.complete))
    _print(list(stats.values()), as_json=as_json)
    return 0


def _samples(store: ObjectStore, complete: list[SegmentManifest]) -> tuple[_Sample | None, _Sample | None]:
    if not complete:
        return None, None
    first = _sample(store, complete[0])
    return first, first if len(complete) == 1 else _sample(store, complete[-1])


def _sample(store: ObjectStore, manifest: SegmentManifest) -> _Sample | None:
    """None where there is no batch of the current format to look at, or no key to open it."""
    try:
        batch = batch_at(store.get_range(manifest.key(), 0, HEADER_SIZE))
        return _Sample(batch.base_timestamp, batch.codec_name) if batch.magic == 2 else None
    except (CorruptRecordError, RemoteResourceNotFoundError, DamagedRemoteObjectError, ValueError):
        return None
    except RemoteStorageError:
        if manifest.encryption is None:
            raise
        return None


def _print(stats: list[TierStat], *, as_json: bool) -> None:
    if as_json:
        for one in stats:
            print_json(_json(one))
        return
    if not on_terminal():
        for one in stats:
            print_tabbed(*_plain(one))
        return
    by_partition = any(one.partition is not None for one in stats)
    columns = (
        TableColumn("topic"),
        TableColumn("partition" if by_partition else "partitions", is_number=True),
        TableColumn("segments", is_number=True),
        TableColumn("incomplete", 4, is_number=True),
        TableColumn("size", is_number=True),
        TableColumn("records", 5, is_number=True),
        TableColumn("indexes", 6, is_number=True),
        TableColumn("other", 7, is_number=True),
        TableColumn("oldest (UTC)", 3),
        TableColumn("newest (UTC)"),
        TableColumn("codecs", 2),
        TableColumn("per day", 1, is_number=True),
    )
    print_table(columns, [_cells(one) for one in stats])


def _cells(one: TierStat) -> tuple[str, ...]:
    log = one.bytes_by_kind[ObjectKind.LOG.value]
    indexes = sum(
        one.bytes_by_kind[kind.value] for kind in (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TXN_INDEX)
    )
    indexes += one.bytes_by_kind[aiven_keys.INDEXES]
    growth = one.bytes_per_day
    return (
        one.topic,
        str(one.partitions if one.partition is None else one.partition),
        str(one.segments),
        str(one.incomplete),
        size_text(one.bytes),
        size_text(log),
        size_text(indexes),
        size_text(one.bytes - log - indexes),
        time_text(one.oldest_ms),
        time_text(one.newest_ms),
        ",".join(sorted(one.codecs)),
        "" if growth is None else size_text(growth),
    )


def _plain(one: TierStat) -> Iterator[object]:
    yield one.topic if one.partition is None else f"{one.topic}-{one.partition}"
    yield f"segments={one.segments}"
    yield f"incomplete={one.incomplete}"
    yield f"bytes={one.bytes}"
    for kind, size in sorted(one.bytes_by_kind.items()):
        yield f"{kind}={size}"
    yield f"oldest={time_text(one.oldest_ms)}"
    yield f"newest={time_text(one.newest_ms)}"
    yield f"codecs={','.join(sorted(one.codecs))}"
    yield f"bytes-per-day={'' if one.bytes_per_day is None else one.bytes_per_day}"


def _json(one: TierStat) -> dict[str, object]:
    return {
        "topic": one.topic,
        "topicId": uuid_to_base64(one.topic_id),
        "partition": one.partition,
        "partitions": one.partitions,
        "segments": one.segments,
        "incompleteSegments": one.incomplete,
        "bytes": one.bytes,
        "bytesByKind": dict(sorted(one.bytes_by_kind.items())),
        "otherBytes": one.other_bytes,
        "oldestTimestamp": one.oldest_ms,
        "newestTimestamp": one.newest_ms,
        "codecs": sorted(one.codecs),
        "layouts": sorted(one.layouts),
        "offsetIndexEntrySizes": sorted(one.index_formats),
        "bytesPerDay": one.bytes_per_day,
    }
