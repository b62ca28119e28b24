"""The remote half of an audit: partitions listed and judged by tasks of their own, then the content of every segment.

The rules are those of `stratalog tier audit --deep` (`jobs.audit`). A segment whose content an earlier run found sound,
and whose objects have the same sizes and entity tags since, is not read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.inspect import DataDirs, LogFacts, PartitionMetadata, PartitionObjects, PartitionReader, find_partitions
from stratalog.jobs.audit import Finding, SegmentFacts, audit, beside_partitions, check_content, segments_to_read
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.storage import open_bucket
from stratalog.spark.pipelines.progress import Progress
from stratalog.spark.pipelines.runner import run_tasks
from stratalog.spark.pipelines.state import Ledger
from stratalog.util import crc32c

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class RemoteAudit:
    """What the audit of a bucket found, and how much of it had to be read."""

    findings: list[Finding] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    read_bytes: int = 0
    known_segments: int = 0


@dataclass(frozen=True, slots=True)
class _Bucket:
    url: str
    options: dict[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class _PartitionTask:
    bucket: _Bucket
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
    bucket: _Bucket
    facts: SegmentFacts

    @property
    def size(self) -> int:
        return self.facts.stored.bytes

    @property
    def key(self) -> str:
        return f"{self.bucket.url}/{self.facts.stored.manifest_key}"

    @property
    def fingerprint(self) -> str:
        """Of all objects as the store lists them."""
        objects = sorted(self.facts.stored.objects.values(), key=lambda info: info.key)
        listed = [(info.key, info.size, info.etag or info.last_modified_ms) for info in objects]
        return f"{crc32c(repr(listed).encode()):08x}:{self.size}"

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True)
class _PartitionResult:
    findings: list[Finding] = field(hash=False)
    to_read: list[SegmentFacts] = field(hash=False)
    segments: int
    bytes: int


def audit_remote(
    spark: SparkSession,
    url: str,
    options: Mapping[str, str],
    *,
    topics: Collection[str] | None,
    data_dirs: DataDirs | None,
    now_ms: int,
    grace_ms: int,
    ledger: Ledger,
    progress: Progress,
) -> RemoteAudit:
    """Check a bucket, with the metadata of `data_dirs` where there are any. RemoteStorageError, TaskError."""
    bucket = _Bucket(url, dict(options))
    listed = find_partitions(open_bucket(url, options), topics)
    tasks = [
        _PartitionTask(
            bucket,
            partition,
            is_there,
            metadata,
            None if data_dirs is None else data_dirs.log_facts(partition),
            now_ms,
            grace_ms,
        )
        for partition, is_there, metadata in _with_metadata(listed.partitions, data_dirs, topics)
    ]
    result = RemoteAudit(findings=list(beside_partitions(listed)), partitions=len(tasks))
    contents: list[_ContentTask] = []
    for found in run_tasks(spark, tasks, _judge, title="listing partitions", progress=progress):
        result.findings += found.findings
        result.segments += found.segments
        result.bytes += found.bytes
        contents += (_ContentTask(bucket, facts) for facts in found.to_read)
    unknown = [task for task in contents if ledger.get(task.key) != task.fingerprint]
    result.known_segments = len(contents) - len(unknown)
    by_key = {task.key: task for task in unknown}
    work = run_tasks(spark, unknown, _check, title="reading segments", progress=progress, cost=lambda task: task.size)
    for key, findings, read in work:
        result.findings += findings
        result.read_bytes += read
        if not findings:
            ledger.add(key, by_key[key].fingerprint)
    return result


def _with_metadata(
    partitions: Collection[TopicIdPartition], data_dirs: DataDirs | None, topics: Collection[str] | None
) -> Iterator[tuple[TopicIdPartition, bool, PartitionMetadata | None]]:
    """Every partition that is in the bucket or that the metadata mention, once, and whether it is in the bucket."""
    left = dict.fromkeys(partitions)
    for replayed in data_dirs.replay() if data_dirs is not None else ():
        for partition, said in sorted(replayed.items()):
            if topics is None or partition.topic in topics:
                yield partition, partition in left, said
                left.pop(partition, None)
    complete = data_dirs is not None and data_dirs.has_metadata and data_dirs.metadata_is_complete
    for partition in left:
        yield partition, True, PartitionMetadata() if complete else None


# --- on the workers ---------------------------------------------------------------------------------------------------


def _judge(task: _PartitionTask) -> _PartitionResult:
    stored = PartitionObjects(task.partition, (), {})
    if task.is_in_bucket:
        with PartitionReader(open_bucket(task.bucket.url, task.bucket.options).inner) as reader:
            stored = reader.read(task.partition)
    findings = audit(
        task.partition,
        stored.manifests,
        task.metadata,
        stored.objects,
        task.log_facts,
        now_ms=task.now_ms,
        grace_ms=task.grace_ms,
    )
    return _PartitionResult(
        findings,
        list(segments_to_read(stored, task.metadata)),
        len(stored.manifests),
        sum(info.size for info in stored.objects),
    )


def _check(task: _ContentTask) -> tuple[str, list[Finding], int]:
    read = 0

    def on_bytes(count: int) -> None:
        nonlocal read
        read += count

    findings = check_content(open_bucket(task.bucket.url, task.bucket.options), task.facts, on_bytes)
    return task.key, findings, read
