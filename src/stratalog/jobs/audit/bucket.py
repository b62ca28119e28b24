"""Audit a whole bucket by the rules of `partition`. Only reads.

One task lists and judges a partition. With `deep`, another task reads the content of each of its segments afterwards.
If metadata is given, partitions are audited one metadata partition at a time; those that it does not mention come last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.inspect import (
    BucketPartitions,
    DataDirSet,
    LogFacts,
    PartitionMetadata,
    PartitionObjects,
    PartitionReader,
    find_partitions,
    group_objects,
    read_manifest,
    topic_ids,
)
from stratalog.jobs.audit.findings import AuditKind, ObjectFinding
from stratalog.jobs.audit.partition import audit_partition, foreign_object
from stratalog.jobs.audit.reading import read_segment
from stratalog.jobs.audit.segment import SegmentFacts, misfits, object_finding, state_of
from stratalog.jobs.executor import Executor, Threads
from stratalog.jobs.findings import Severity
from stratalog.jobs.ledger import Ledger
from stratalog.jobs.progress import SILENT, Progress
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.storage import (
    ObjectStore,
    PlainView,
    SegmentManifest,
    SegmentReader,
    object_key,
    open_bucket,
)
from stratalog.util import crc32c, uuid_to_base64

#: The object whose timestamp is the store's time; see `repair.store_time_ms`.
CLOCK_KEY = "stratalog-tier-clock"

#: A reader of segments takes 8 MiB of memory.
READERS: Final = Threads(4)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Options of an audit: `topics` is None for all topics, and `deep` reads every object.

    Objects younger than `grace_ms` at `now_ms` may belong to a copy or deletion in progress.
    """

    now_ms: int
    grace_ms: int
    topics: Collection[str] | None = None
    deep: bool = False


@dataclass(slots=True)
class BucketAudit:
    """The extent of an audit and its findings. `bytes` counts all objects, `read_bytes` those that were read.

    `known_segments` counts segments that an earlier run found sound. They have not changed, so they were not read.
    """

    findings: list[ObjectFinding] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    objects: int = 0
    bytes: int = 0
    read_bytes: int = 0
    known_segments: int = 0


class Bucket:
    """A bucket that each task opens where it runs: other processes get its URL and options."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.url = url
        self._options = dict(options or {})
        self._is_open_store = False

    @classmethod
    def of(cls, store: ObjectStore) -> Bucket:
        """Return a bucket for tasks of this process. Pass a `PlainView` to read encrypted segments."""
        bucket = cls(store.url)
        bucket.view = plain_view(store)
        bucket._is_open_store = True
        return bucket

    @cached_property
    def view(self) -> PlainView:
        """The contents of segments, and the store below."""
        return open_bucket(self.url, self._options)

    @cached_property
    def reader(self) -> PartitionReader:
        """The pool that lists partitions. Its threads end with the bucket."""
        return PartitionReader(self.view.inner)

    def __reduce__(self) -> tuple[type[Bucket], tuple[str, dict[str, str]]]:
        if self._is_open_store:
            raise TypeError(f"{self.url}: a store that is open cannot be sent to other processes; give its URL")
        return Bucket, (self.url, self._options)


# --- the plan -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PartitionTask:
    bucket: Bucket
    partition: TopicIdPartition
    is_in_bucket: bool
    metadata: PartitionMetadata | None
    log_facts: LogFacts | None
    now_ms: int
    grace_ms: int

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition} in {self.bucket.url}"


@dataclass(frozen=True, slots=True)
class _ContentTask:
    bucket: Bucket
    facts: SegmentFacts

    @property
    def size(self) -> int:
        return self.facts.stored.bytes

    @property
    def key(self) -> str:
        return f"{self.bucket.url}/{self.facts.stored.manifest_key}"

    @property
    def fingerprint(self) -> str:
        """The totals of all objects as the store lists them. They change when an object does."""
        objects = sorted(self.facts.stored.objects.values(), key=lambda info: info.key)
        listed = [(info.key, info.size, info.etag or info.last_modified_ms) for info in objects]
        return f"{crc32c(repr(listed).encode()):08x}:{self.size}"

    def __str__(self) -> str:
        return self.key


def audit_bucket(
    bucket: Bucket | ObjectStore,
    options: AuditOptions,
    data_dirs: DataDirSet | None = None,
    *,
    executor: Executor = READERS,
    ledger: Ledger | None = None,
    progress: Progress = SILENT,
) -> BucketAudit:
    """Check a bucket, with the metadata of `data_dirs` if given. Change nothing.

    An open store works for threads of this process only; other executors need a `Bucket`. `ledger` remembers sound
    contents; without one everything is read.

    Returns:
        All findings, by topic, partition and offset.

    Raises:
        RemoteStorageError, TaskError: The store failed, so there is no result.
    """
    if isinstance(bucket, ObjectStore):
        bucket = Bucket.of(bucket)
    listed = find_partitions(bucket.view, options.topics)
    result = BucketAudit(findings=list(beside_partitions(listed)))
    with (
        bucket.reader,
        closing(
            _judged(
                bucket=bucket,
                listed=listed,
                options=options,
                data_dirs=data_dirs,
                result=result,
                executor=executor,
                progress=SILENT if options.deep else progress,
            )
        ) as judged,
    ):
        contents = (_ContentTask(bucket, facts) for each in judged for facts in each.to_read)
        if not options.deep:
            for _ in judged:
                pass
        else:
            _check_contents(contents, result, executor, ledger or Ledger(None, "audit"), progress)
    result.findings.sort(key=order_of)
    return result


def _judged(  # noqa: PLR0917
    bucket: Bucket,
    listed: BucketPartitions,
    options: AuditOptions,
    data_dirs: DataDirSet | None,
    result: BucketAudit,
    executor: Executor,
    progress: Progress,
) -> Generator[_Judged, None, None]:
    """Judge every partition, and add the findings to `result`."""
    tasks = (
        _PartitionTask(
            bucket=bucket,
            partition=partition,
            is_in_bucket=is_there,
            metadata=metadata,
            log_facts=None if data_dirs is None else data_dirs.log_facts(partition),
            now_ms=options.now_ms,
            grace_ms=options.grace_ms,
        )
        for partition, is_there, metadata in _with_metadata(listed.partitions, data_dirs, options.topics)
    )
    with closing(executor.map(_judge, tasks, title="listing partitions", progress=progress)) as judged:
        for found in judged:
            result.findings += found.findings
            result.partitions += 1
            result.segments += found.segments
            result.objects += found.objects
            result.bytes += found.bytes
            yield found


def _check_contents(
    contents: Iterator[_ContentTask], result: BucketAudit, executor: Executor, ledger: Ledger, progress: Progress
) -> None:
    fingerprints: dict[str, str] = {}

    def unknown() -> Iterator[_ContentTask]:
        for task in contents:
            fingerprint = task.fingerprint
            if ledger.get(task.key) == fingerprint:
                result.known_segments += 1
            else:
                fingerprints[task.key] = fingerprint
                yield task

    checked = executor.map(_check, unknown(), title="reading segments", progress=progress, cost=lambda task: task.size)
    with closing(checked):
        for key, findings, read in checked:
            fingerprint = fingerprints.pop(key)
            result.findings += findings
            result.read_bytes += read
            if not findings:
                ledger.add(key, fingerprint)


def plain_view(store: ObjectStore) -> PlainView:
    """Return a view of segment contents: `store` itself if it is one, otherwise a view without keys."""
    return store if isinstance(store, PlainView) else PlainView(SegmentReader(store))


def _with_metadata(
    partitions: Collection[TopicIdPartition], data_dirs: DataDirSet | None, topics: Collection[str] | None
) -> Iterator[tuple[TopicIdPartition, bool, PartitionMetadata | None]]:
    left = dict.fromkeys(partitions)
    for replayed in data_dirs.replay() if data_dirs is not None else ():
        for partition, said in sorted(replayed.items()):
            if topics is None or partition.topic in topics:
                yield partition, partition in left, said
                left.pop(partition, None)
    complete = data_dirs is not None and data_dirs.has_metadata and data_dirs.metadata_is_complete
    for partition in left:
        yield partition, True, PartitionMetadata() if complete else None


# --- the work -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Judged:
    """Findings from the listing of a partition, and the segments whose content can be read."""

    findings: list[ObjectFinding] = field(hash=False)
    to_read: list[SegmentFacts] = field(hash=False)
    segments: int
    objects: int
    bytes: int


def _judge(task: _PartitionTask) -> _Judged:
    stored = PartitionObjects(task.partition, (), {})
    if task.is_in_bucket:
        stored = task.bucket.reader.read(task.partition)
    findings = audit_partition(
        task.partition,
        stored.manifests,
        task.metadata,
        stored.objects,
        task.log_facts,
        now_ms=task.now_ms,
        grace_ms=task.grace_ms,
    )
    return _Judged(
        findings,
        list(segments_to_read(stored, task.metadata)),
        len(stored.manifests),
        len(stored.objects),
        sum(info.size for info in stored.objects),
    )


def _check(task: _ContentTask) -> tuple[str, list[ObjectFinding], int]:
    """Return the findings of a segment's content, and the number of bytes read."""
    read = 0

    def on_bytes(count: int) -> None:
        nonlocal read
        read += count

    findings = check_content(task.bucket.view, task.facts, on_bytes)
    return task.key, findings, read


def segments_to_read(stored: PartitionObjects, metadata: PartitionMetadata | None) -> Iterator[SegmentFacts]:
    """Yield the segments of a partition whose content can be checked: those with a readable manifest."""
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
) -> list[ObjectFinding]:
    """Return the findings of one segment's content. Faults found by the listing (missing, wrong size) are not repeated.

    Raises RemoteStorageError when the store fails.
    """
    manifest = read_manifest(view.inner, facts.stored.manifest_key)
    if not isinstance(manifest, SegmentManifest):
        return []  # it was deleted since the listing
    view.reader.remember(manifest)
    listed = {key for key, _, _ in misfits(facts.stored, manifest)}
    try:
        read = read_segment(view, manifest, on_bytes)
    except RemoteStorageError as error:
        if manifest.encryption is None or isinstance(error, RetriableRemoteStorageError):
            raise
        text = f"its content was not checked: {error}"
        return [facts.finding(Severity.WARNING, AuditKind.SEALED, text, "audit again with the key")]
    return [
        object_finding(facts, manifest, key, fault.kind, fault.text, read.records.records_are_sound)
        for fault in read.faults
        if (key := object_key(manifest, fault.object)) not in listed
    ]


def order_of(finding: ObjectFinding) -> tuple[str, int, int, str, str]:
    """By topic, partition and offset."""
    return (
        finding.topic,
        -1 if finding.partition is None else finding.partition,
        -1 if finding.offsets is None else finding.offsets.first,
        str(finding.segment_id),
        finding.object_key or "",
    )


def beside_partitions(bucket: BucketPartitions) -> Iterator[ObjectFinding]:
    """Yield findings for objects that belong to no partition, and for topics with several ids."""
    for name in bucket.foreign_directories:
        yield ObjectFinding(
            severity=Severity.NOTE,
            kind=AuditKind.FOREIGN_OBJECT,
            object_key=name + "/",
            text="this is not a directory of a topic or partition",
            action="none: it is left alone",
        )
    for info in bucket.foreign_objects:
        if info.key != CLOCK_KEY:
            yield foreign_object(info)
    for topic, ids in topic_ids(bucket.partitions).items():
        if len(ids) > 1:
            names = ", ".join(sorted(uuid_to_base64(topic_id) for topic_id in ids))
            yield ObjectFinding(
                severity=Severity.NOTE,
                kind=AuditKind.SEVERAL_TOPIC_IDS,
                topic=topic,
                text=f"topics of this name have been here with the ids {names}",
                action="none: with a data directory (--data-dir) the audit reports which one is in use",
            )
