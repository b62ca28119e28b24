"""An audit of a whole bucket: what is read, in which order, and the rules of `audit` put to it.

With metadata at hand the partitions come in the order in which the metadata mention them, one of its partitions at a
time; then those that no metadata mention. Only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.inspect import (
    BucketPartitions,
    DataDirs,
    PartitionMetadata,
    PartitionObjects,
    PartitionReader,
    find_partitions,
    group_objects,
    in_order,
    read_manifest,
    topic_ids,
)
from stratalog.jobs.audit.findings import Finding, Kind, Severity
from stratalog.jobs.audit.partition import audit
from stratalog.jobs.audit.reading import read_segment
from stratalog.jobs.audit.segment import SegmentFacts, misfits, object_finding, state_of
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.storage import ObjectInfo, ObjectStore, PlainView, SegmentManifest, SegmentReader, object_key
from stratalog.util import uuid_to_base64

#: The object that tells the store's time; see `repair.store_time_ms`.
CLOCK_KEY = "stratalog-tier-clock"


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """`topics` None: all. What is younger than `grace_ms` at `now_ms` may be under way.

    `readers` read objects at once.
    """

    now_ms: int
    grace_ms: int
    topics: Collection[str] | None = None
    deep: bool = False
    readers: int = 4


@dataclass(slots=True)
class AuditResult:
    """What was looked at and what was found; bytes are those of all objects, `read_bytes` those that were read."""

    findings: list[Finding] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    objects: int = 0
    bytes: int = 0
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """Told as the audit goes on: how many partitions there are, that one is done, that bytes were read."""

    on_total: Callable[[int], None] = lambda _: None
    on_partition: Callable[[], None] = lambda: None
    on_bytes: Callable[[int], None] = lambda _: None


def audit_bucket(
    store: ObjectStore,
    options: AuditOptions,
    data_dirs: DataDirs | None = None,
    progress: AuditProgress | None = None,
) -> AuditResult:
    """Look at everything. Raises RemoteStorageError when the store fails; then nothing is known.

    A `PlainView` has the keys of what is encrypted, which is needed for a deep audit of it.
    """
    run = _Audit(store, options, data_dirs, progress or AuditProgress())
    bucket = find_partitions(store, options.topics)
    run.progress.on_total(len(bucket.partitions))
    run.result.findings += beside_partitions(bucket)
    with PartitionReader(store) as reader, ThreadPoolExecutor(options.readers, "tier-read") as pool:
        for partition, stored, metadata in _with_metadata(reader, bucket, data_dirs, options.topics):
            run.partition(partition, stored, metadata, pool)
    run.result.findings.sort(key=order_of)
    return run.result


def plain_view(store: ObjectStore) -> PlainView:
    """A view on the contents of segments: `store` itself where it is one, without keys else."""
    return store if isinstance(store, PlainView) else PlainView(SegmentReader(store))


_Partition = tuple[TopicIdPartition, PartitionObjects, PartitionMetadata | None]


def _with_metadata(
    reader: PartitionReader,
    bucket: BucketPartitions,
    data_dirs: DataDirs | None,
    topics: Collection[str] | None,
) -> Iterator[_Partition]:
    """Every partition that is in the bucket or that the metadata mention, once."""
    left = dict.fromkeys(bucket.partitions)
    for replayed in data_dirs.replay() if data_dirs is not None else ():
        mentioned = [p for p in sorted(replayed) if topics is None or p.topic in topics]
        listed = reader.read_all(p for p in mentioned if p in left)
        for partition in mentioned:
            stored = next(listed) if partition in left else PartitionObjects(partition, (), {})
            left.pop(partition, None)
            yield partition, stored, replayed[partition]
    complete = data_dirs is not None and data_dirs.has_metadata and data_dirs.metadata_is_complete
    for stored in reader.read_all(left):
        yield stored.partition, stored, PartitionMetadata() if complete else None


class _Audit:
    """One audit under way."""

    def __init__(
        self, store: ObjectStore, options: AuditOptions, data_dirs: DataDirs | None, progress: AuditProgress
    ) -> None:
        self._view = plain_view(store)
        self._options = options
        self._data_dirs = data_dirs
        self.progress = progress
        self.result = AuditResult()

    def partition(
        self,
        partition: TopicIdPartition,
        stored: PartitionObjects,
        metadata: PartitionMetadata | None,
        pool: ThreadPoolExecutor,
    ) -> None:
        log_facts = None if self._data_dirs is None else self._data_dirs.log_facts(partition)
        options, result = self._options, self.result
        result.findings += audit(
            partition,
            stored.manifests,
            metadata,
            stored.objects,
            log_facts,
            now_ms=options.now_ms,
            grace_ms=options.grace_ms,
        )
        result.partitions += 1
        result.segments += len(stored.manifests)
        result.objects += len(stored.objects)
        result.bytes += sum(info.size for info in stored.objects)
        if options.deep:
            for facts in self._to_read(stored, metadata, pool):
                result.findings += facts
        self.progress.on_partition()

    def _to_read(
        self, stored: PartitionObjects, metadata: PartitionMetadata | None, pool: ThreadPoolExecutor
    ) -> Iterator[list[Finding]]:
        segments = segments_to_read(stored, metadata)
        return in_order(pool, self._read, segments, self._options.readers * 2)

    def _read(self, facts: SegmentFacts) -> list[Finding]:
        return check_content(self._view, facts, self._on_bytes)

    def _on_bytes(self, count: int) -> None:
        self.result.read_bytes += count
        self.progress.on_bytes(count)


def segments_to_read(stored: PartitionObjects, metadata: PartitionMetadata | None) -> Iterator[SegmentFacts]:
    """The segments of a partition whose content can be checked: those with a manifest that can be read."""
    sets, _ = group_objects(stored.objects)
    for segment_id, manifest in stored.manifests.items():
        if isinstance(manifest, SegmentManifest) and segment_id in sets:
            yield SegmentFacts(
                sets[segment_id],
                manifest,
                None if metadata is None else metadata.segments.get(segment_id),
                state_of(segment_id, metadata),
                is_young=False,
            )


def check_content(
    view: PlainView, facts: SegmentFacts, on_bytes: Callable[[int], None] = lambda _: None
) -> list[Finding]:
    """The findings of one segment's content. What the listing has told (missing, wrong size) is not told again.

    Raises RemoteStorageError when the store fails.
    """
    manifest = read_manifest(view.inner, facts.stored.manifest_key)
    if not isinstance(manifest, SegmentManifest):
        return []  # it has gone meanwhile
    view.reader.remember(manifest)
    told = {key for key, _, _ in misfits(facts.stored, manifest)}
    try:
        read = read_segment(view, manifest, on_bytes)
    except RemoteStorageError as error:
        if manifest.encryption is None or isinstance(error, RetriableRemoteStorageError):
            raise
        return [_sealed(facts, str(error))]
    return [
        object_finding(facts, manifest, key, fault.kind, fault.text, read.records.records_are_sound)
        for fault in read.faults
        if (key := object_key(manifest, fault.object)) not in told
    ]


def order_of(finding: Finding) -> tuple[str, int, int, str, str]:
    """By topic, partition and offset."""
    return (
        finding.topic,
        -1 if finding.partition is None else finding.partition,
        -1 if finding.offsets is None else finding.offsets.first,
        str(finding.segment_id),
        finding.object_key or "",
    )


def beside_partitions(bucket: BucketPartitions) -> Iterator[Finding]:
    """What lies in the bucket and belongs to no partition; topics that have several ids."""
    for name in bucket.foreign_directories:
        yield Finding(
            Severity.NOTE,
            Kind.FOREIGN_OBJECT,
            "",
            None,
            None,
            name + "/",
            None,
            0,
            "this is no directory of a topic or partition",
            "none: it is left alone",
        )
    for info in bucket.foreign_objects:
        if info.key != CLOCK_KEY:
            yield _foreign(info)
    for topic, ids in topic_ids(bucket.partitions).items():
        if len(ids) > 1:
            names = ", ".join(sorted(uuid_to_base64(topic_id) for topic_id in ids))
            yield Finding(
                Severity.NOTE,
                Kind.SEVERAL_TOPIC_IDS,
                topic,
                None,
                None,
                None,
                None,
                0,
                f"topics of this name have been here with the ids {names}",
                "none: with a data directory (--data-dir) the audit tells which one is in use",
            )


def _sealed(facts: SegmentFacts, reason: str) -> Finding:
    return facts.finding(
        Severity.WARNING, Kind.SEALED, f"its content was not checked: {reason}", "audit again with the key"
    )


def _foreign(info: ObjectInfo) -> Finding:
    return Finding(
        Severity.NOTE,
        Kind.FOREIGN_OBJECT,
        "",
        None,
        None,
        info.key,
        None,
        info.size,
        "this is no object of a segment",
        "none: it is left alone",
        None,
        info.last_modified_ms,
    )
