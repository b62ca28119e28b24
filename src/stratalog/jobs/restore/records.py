"""Restore topics from a bucket with their records: into a data directory, or into another bucket.

    restore_to_directory("s3://bucket/tiered", "/var/lib/new", register=..., topics={"orders"})
    restore_to_bucket("s3://aiven-bucket/tiered", "s3://other/tiered", target_options={"compression": "zstd"})

By contrast, `stratalog tier restore` makes a data directory and leaves the records in the bucket. Here records are
copied in parallel, one task for each segment. The same rules choose the segments (`jobs.restore.plan`). A directory is
marked as unfinished until it is complete; a bucket gets all segments in one step. Run an interrupted restore again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratalog.errors import NotOwnerError, UsageError
from stratalog.inspect import list_remote_segments, restore_marker
from stratalog.jobs.executor import THREADS, Executor
from stratalog.jobs.progress import SILENT, Progress
from stratalog.jobs.report import Column, Report, Unit
from stratalog.jobs.restore.bucket import RestoredTopic, RestorePlan, plan_restore
from stratalog.jobs.restore.copy import (
    BucketTask,
    LocalTask,
    Source,
    can_encode,
    copy_to_bucket,
    copy_to_directory,
)
from stratalog.jobs.restore.plan import PartitionRestore
from stratalog.jobs.restore.run import begin_empty, check_target, write_checkpoints, write_partitions
from stratalog.remote.api import RemoteLogSegmentMetadata
from stratalog.remote.ownership import check_no_owner
from stratalog.remote.storage import ObjectKey, ObjectKind, PlainView, object_key, open_bucket, parse_manifest_key
from stratalog.remote.transactions import discard, publish
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, random_uuid

#: Registers the topics with the broker of the directory, durably, with the largest producer id (-1 for none).
RegisterTopics = Callable[[Sequence[RestoredTopic], int], None]

_WHAT: Final = "a restore into it"
_COLUMNS: Final = (
    Column("topic"),
    Column("partition"),
    Column("log_start_offset"),
    Column("log_end_offset"),
    Column("segments"),
    Column("bytes", Unit.BYTES),
)


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore or dry run. `problems` tell what is missing, `notes` what else to know."""

    title: str
    partitions: tuple[tuple[str, int, int, int, int, int], ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    copied_segments: int
    copied_bytes: int

    def report(self) -> Report:
        totals = {
            "partitions": len(self.partitions),
            "copied_segments": self.copied_segments,
            "copied_bytes": self.copied_bytes,
            "problems": len(self.problems),
        }
        return Report(self.title, _COLUMNS, [list(row) for row in self.partitions], totals)


def restore_to_directory(
    remote: str,
    data_dir: str | Path,
    *,
    register: RegisterTopics | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    topic_config: Mapping[str, str] | None = None,
    at_ms: int | None = None,
    dry_run: bool = False,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> RestoreResult:
    """Make plain topics, with all records local, in a new or empty directory that driver and workers share.

    Retention is disabled (-1) unless `topic_config` sets it; otherwise a broker would delete old records at once.
    `register` gets the topics before the directory is marked as complete. Without it, create them in the broker later.

    Returns:
        What was restored, and what is missing.

    Raises:
        DataDirError: The directory is not empty.
        UsageError: The bucket lacks one of `topics`, or the workers wrote somewhere else.
        RemoteStorageError, OSError, TaskError: Something cannot be read or written.

    """
    target = Path(data_dir).absolute()
    check_target(target, metadata_only=False)
    view = open_bucket(remote, remote_options or {})
    plan = plan_restore(view, topics, at_ms=at_ms)
    keys = _manifest_keys(view, plan, topics)
    tasks = [
        LocalTask(source, _directory(target, partition))
        for partition in plan.partitions
        for source in _sources(remote, remote_options or {}, partition, keys)
    ]
    if dry_run:
        return _result("To be restored", plan, len(tasks), sum(task.source.size for task in tasks), ())
    fs = REAL_FILESYSTEM
    fs.make_dirs(target)
    begin_empty(target, fs)
    ends, notes = write_partitions(plan, target, SYSTEM_CLOCK, fs)
    copied = executor.map(
        copy_to_directory, tasks, title="restoring", progress=progress, cost=lambda task: task.source.size
    )
    written = list(copied)
    for each in written:
        if each.log is not None and (not fs.exists(each.log) or fs.size(each.log) != each.size):
            raise UsageError(
                f"{each.log}: a worker wrote it, but it is missing here: driver and workers must share {target}; the "
                "directory is marked as unfinished"
            )
    write_checkpoints(plan, target, ends, fs)
    if register is not None:
        register([_plain_topic(topic, topic_config or {}) for topic in plan.topics], plan.producer_id_max)
    restore_marker.end(target, fs)
    return _result("Restored", plan, len(written), sum(each.size for each in written), notes)


def restore_to_bucket(
    remote: str,
    target: str,
    *,
    remote_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    at_ms: int | None = None,
    dry_run: bool = False,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> RestoreResult:
    """Copy segments into another bucket, in our layout, encoded by `target_options`. All become visible in one step.

    Topic ids, segment ids and leader epochs stay the same. Objects that exist with the same size are not copied again.

    Returns:
        What was copied, and what is missing.

    Raises:
        UsageError: Source and target are the same, or the bucket lacks one of `topics`.
        NotOwnerError: A cluster owns the target.
        RemoteStorageError, OSError, TaskError: Something cannot be read or written.

    """
    if remote.rstrip("/") == target.rstrip("/"):
        raise UsageError(f"{target}: a bucket cannot be restored into itself")
    options = dict(target_options or {})
    can_encode(options)
    view = open_bucket(remote, remote_options or {})
    plan = plan_restore(view, topics, at_ms=at_ms)
    keys = _manifest_keys(view, plan, topics)
    there = open_bucket(target, {key: value for key, value in options.items() if key != "compression"}).inner
    if not dry_run:
        check_no_owner(there, _WHAT)
    known = {m.segment_id: m.segment_size_in_bytes for m in list_remote_segments(there, topics, covered=True)}
    tasks = [
        BucketTask(source, target, options)
        for partition in plan.partitions
        for source, segment in zip(
            _sources(remote, remote_options or {}, partition, keys), _uncovered(partition), strict=True
        )
        if known.get(segment.segment_id.id) != segment.segment_size_bytes
    ]
    size = sum(task.source.size for task in tasks)
    if dry_run:
        return _result("To be copied", plan, len(tasks), size, ())
    copied = executor.map(copy_to_bucket, tasks, title="copying", progress=progress, cost=lambda task: task.source.size)
    staged = list(copied)
    if staged:
        try:
            check_no_owner(there, _WHAT)  # it may have got an owner since the start
        except NotOwnerError:
            discard(there, staged)
            raise
        publish(there, f"restore-{random_uuid().hex}", staged)
    return _result("Copied", plan, len(staged), size, ())


def _plain_topic(topic: RestoredTopic, overrides: Mapping[str, str]) -> RestoredTopic:
    """Return the topic without settings of the remote tier, and without retention."""
    kept = {key: value for key, value in topic.configs.items() if not key.startswith(("remote.", "local.retention."))}
    configs = {**kept, "retention.ms": "-1", "retention.bytes": "-1", **overrides}
    return RestoredTopic(topic.name, topic.topic_id, topic.partition_count, configs)


def _directory(target: Path, partition: PartitionRestore) -> Path:
    return target / f"{partition.partition.topic}-{partition.partition.partition}"


def _uncovered(partition: PartitionRestore) -> list[RemoteLogSegmentMetadata]:
    """Return the segments that together have every offset once, in order."""
    kept: list[RemoteLogSegmentMetadata] = []
    for segment in sorted(partition.segments, key=lambda s: (s.start_offset, -s.end_offset, s.event_timestamp_ms)):
        if not kept or segment.end_offset > kept[-1].end_offset:
            kept.append(segment)
    return kept


def _sources(
    url: str, options: Mapping[str, str], partition: PartitionRestore, keys: Mapping[ObjectKey, str]
) -> Iterator[Source]:
    reached = -1
    for segment in _uncovered(partition):
        key = keys[ObjectKey.of(segment, ObjectKind.MANIFEST)]
        yield Source(url, dict(options), key, reached + 1, segment.segment_size_bytes)
        reached = segment.end_offset


def _manifest_keys(view: PlainView, plan: RestorePlan, topics: Collection[str] | None) -> dict[ObjectKey, str]:
    """Return the manifest key of each planned segment, which depends on the layout."""
    wanted = {ObjectKey.of(segment, ObjectKind.MANIFEST) for segment in plan.segments}
    found: dict[ObjectKey, str] = {}
    for manifest in list_remote_segments(view.inner, topics, covered=True):
        key = object_key(manifest, ObjectKind.MANIFEST)
        parsed = parse_manifest_key(key)
        if parsed is not None and parsed in wanted:
            found[parsed] = key
    return found


def _result(title: str, plan: RestorePlan, segments: int, size: int, notes: Sequence[str]) -> RestoreResult:
    rows = tuple(
        (
            each.partition.topic,
            each.partition.partition,
            each.log_start_offset,
            each.log_end_offset,
            len(_uncovered(each)),
            sum(segment.segment_size_bytes for segment in _uncovered(each)),
        )
        for each in plan.partitions
    )
    return RestoreResult(title, rows, plan.problems, (*plan.notes, *notes), segments, size)
