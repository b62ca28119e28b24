"""Bulk-written segments in a bucket that are invisible until `bucket_transaction` publishes them.

A writer assigns provisional offsets. If they are wrong, `move` stores the segment again under a new segment id, so
objects never change. The first half of a segment id is the job's, which identifies what a job has left behind (`sweep`,
`is_of_job`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from stratalog.log.format import EpochEntry, encode_epochs
from stratalog.log.segment import WrittenSegment, renumber
from stratalog.remote.api import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from stratalog.remote.storage import (
    CONTENTS,
    ObjectKey,
    ObjectKind,
    ObjectStore,
    ObjectStoreRemoteStorageManager,
    SegmentManifest,
    parse_topic_directory,
)
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, random_uuid

#: No broker's id: for segments that no broker copied.
BULK_BROKER_ID: Final = -1

_JOB_BYTES: Final = 8
#: Version of custom ids (RFC 9562), and its position.
_BULK_VERSION: Final = 8
_VERSION_AT: Final = 76
_PIECE_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Lineage:
    """The leader epochs of a partition, ascending, never empty. The last one is that of new segments."""

    epochs: tuple[EpochEntry, ...]

    @property
    def latest(self) -> int:
        return self.epochs[-1].epoch

    def of(self, base_offset: int) -> dict[int, int]:
        """Return the epochs of a segment that begins at `base_offset` after all of them."""
        return {self.latest: base_offset}


def stage(
    manager: ObjectStoreRemoteStorageManager,
    partition: TopicIdPartition,
    written: WrittenSegment,
    lineage: Lineage,
    *,
    job: UUID,
    index_entry_size: int,
    topic_config: Mapping[str, str] | None = None,
    partition_count: int | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> SegmentManifest:
    """Store a written segment's objects and return its manifest. Raises RemoteStorageError."""
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(partition, segment_id(job)),
        start_offset=written.base_offset,
        end_offset=written.last_offset,
        max_timestamp_ms=written.max_timestamp_ms if written.max_timestamp_ms >= 0 else clock.now_ms(),
        broker_id=BULK_BROKER_ID,
        event_timestamp_ms=clock.now_ms(),
        segment_size_bytes=written.size,
        segment_leader_epochs=lineage.of(written.base_offset),
        txn_index_empty=True,
    )
    data = LogSegmentData(
        log_segment=written.log,
        offset_index=written.offset_index,
        time_index=written.time_index,
        transaction_index=None,
        producer_snapshot_index=written.snapshot,
        leader_epoch_index=encode_epochs(_cut(lineage, written.base_offset)),
        offset_index_entry_size=index_entry_size,
        topic_config=topic_config,
        partition_count=partition_count,
    )
    return manager.stage(metadata, data)


def move(
    manager: ObjectStoreRemoteStorageManager,
    manifest: SegmentManifest,
    base_offset: int,
    lineage: Lineage,
    scratch: Path,
    *,
    job: UUID,
    fs: FileSystem = REAL_FILESYSTEM,
    clock: Clock = SYSTEM_CLOCK,
) -> SegmentManifest:
    """Stage a staged segment again at `base_offset`, through files in the directory `scratch`. Keeps the old one.

    Memory use does not depend on the segment's size. Raises RemoteStorageError, OSError.
    """
    reader, shift = manager.reader, base_offset - manifest.base_offset
    paths = {}
    for kind in (
        ObjectKind.LOG,
        ObjectKind.OFFSET_INDEX,
        ObjectKind.TIME_INDEX,
        ObjectKind.PRODUCER_SNAPSHOT,
    ):
        path = paths[kind] = scratch / f"{manifest.segment_id}.{kind.value}"
        size = manifest.objects[kind].size
        with fs.open(path, create=True) as file:
            for start in range(0, size, _PIECE_BYTES):
                end = min(size, start + _PIECE_BYTES)
                file.write_at(reader.read_range(manifest, kind, start, end, blocks=False), start)
            if kind is ObjectKind.LOG:
                renumber(file, shift, lineage.latest)
    written = WrittenSegment(
        base_offset=base_offset,
        last_offset=manifest.end_offset + shift,
        max_timestamp_ms=manifest.max_timestamp,
        size=manifest.segment_size_in_bytes,
        records=0,
        log=paths[ObjectKind.LOG],
        offset_index=paths[ObjectKind.OFFSET_INDEX],
        time_index=paths[ObjectKind.TIME_INDEX],
        snapshot=paths[ObjectKind.PRODUCER_SNAPSHOT],
    )
    try:
        return stage(
            manager,
            manifest.topic_id_partition,
            written,
            lineage,
            job=job,
            index_entry_size=manifest.offset_index_entry_size or 8,
            topic_config=manifest.topic_config,
            partition_count=manifest.partition_count,
            clock=clock,
        )
    finally:
        for path in written.files:
            fs.remove(path)


def sweep(store: ObjectStore, job: UUID, topic: str | None) -> int:
    """Delete what a job has staged for `topic` (None: any) and not published. Return the number of objects.

    Published ones are already in place: `finish_publications` comes first. Raises RemoteStorageError.
    """
    deleted = 0
    for directory in store.list_level("").directories:
        name = parse_topic_directory(directory)
        if name is None or topic not in (None, name):
            continue
        own = [
            (info.key, key)
            for info in store.list(directory)
            if (key := ObjectKey.parse(info.key)) is not None and is_of_job(key.segment_id.id, job)
        ]
        published = {key.segment_id for _, key in own if key.kind not in CONTENTS}
        left = [text for text, key in own if key.segment_id not in published]
        store.delete_together(left)
        deleted += len(left)
    return deleted


def new_job() -> UUID:
    """Return an id for a bulk load.

    Of version 8, unlike brokers' ids, so that its segments can be distinguished from broker copies.
    """
    drawn = random_uuid().int
    return UUID(int=drawn & ~(0xF << _VERSION_AT) | _BULK_VERSION << _VERSION_AT)


def is_bulk(segment: UUID) -> bool:
    """Return whether a bulk load staged the segment with this id."""
    return segment.version == _BULK_VERSION


def segment_id(job: UUID) -> UUID:
    return UUID(bytes=job.bytes[:_JOB_BYTES] + random_uuid().bytes[_JOB_BYTES:])


def is_of_job(segment: UUID, job: UUID) -> bool:
    """Return whether a segment id is a job's."""
    return job_of(segment) == job_of(job)


def job_of(segment: UUID) -> bytes:
    """Return the common part of the ids of a job's segments.

    For a segment that a broker copied, its own id.
    """
    return segment.bytes[:_JOB_BYTES]


def _cut(lineage: Lineage, base_offset: int) -> list[EpochEntry]:
    """Return the epochs up to the end of a segment."""
    return [entry for entry in lineage.epochs if entry.start_offset <= base_offset] or [
        EpochEntry(lineage.latest, base_offset)
    ]
