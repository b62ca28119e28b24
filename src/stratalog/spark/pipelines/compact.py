"""Latest value by key over closed segments, of any size.

What stays is, batch by batch, what a cleaning of the log cleaner leaves that sees everything at once;
`docs/spark_compact.md` tells how, and what for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stratalog.config.topic import LogConfig
from stratalog.errors import UsageError
from stratalog.remote.catalog import list_remote_segments
from stratalog.remote.publication import finish_publications, remove_objects
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.spark.pipelines.compaction import bucket, data_dirs, local
from stratalog.spark.pipelines.compaction.job import compacted
from stratalog.spark.pipelines.compaction.result import CompactedPartition, CompactResult
from stratalog.spark.pipelines.progress import SILENT, Progress
from stratalog.spark.pipelines.state import Ledger, State
from stratalog.spark.places import Places
from stratalog.util.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CompactResult", "CompactedPartition", "compact_bucket", "compact_data_dirs"]

#: For how long the objects of replaced segments stay, unless told.
GRACE_SECONDS: Final = 60.0


def compact_data_dirs(
    spark: SparkSession,
    directories: Sequence[str | Path],
    *,
    topics: Sequence[str] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    overrides: Mapping[str, str] | None = None,
    only_due: bool = False,
    dry_run: bool = False,
    progress: Progress = SILENT,
    clock: Clock = SYSTEM_CLOCK,
) -> CompactResult:
    """Compact partitions of log directories that no broker serves; they are locked meanwhile.

    `configs` are topics' properties under Kafka's names, `overrides` go before them (`delete.retention.ms`,
    `segment.bytes`, `min.cleanable.dirty.ratio`, ...). Without `topics` all are taken whose `cleanup.policy` has `compact`.
    `only_due` leaves out what a cleaner would find too clean. With `dry_run` nothing is changed, and the result says what
    would be gained.

    UsageError, DataDirError (a broker has a directory), TaskError, KafkaError, OSError. What was swapped in by then stays.
    """
    paths = [Path(directory).resolve() for directory in directories]
    if not paths:
        raise UsageError("no log directory is named")
    with data_dirs.locked(paths):
        partitions = [
            partition
            for partition in data_dirs.local_partitions(paths, topics)
            if topics is not None or _config(partition.topic, configs, overrides).compacted
        ]
        planned = [local.plan_of(each, _config(each.topic, configs, overrides), clock) for each in partitions]
        plans = [each for each in planned if each.is_due or not only_due]
        results: list[CompactedPartition] = []
        for part, result, rewritten in compacted(
            spark, [each.plan for each in plans], dry_run=dry_run, progress=progress
        ):
            if not dry_run:
                local.swap_in(plans[part], rewritten, clock)
            results.append(result)
    return CompactResult(sorted(results), dry_run)


def compact_bucket(
    spark: SparkSession,
    url: str,
    *,
    topics: Sequence[str],
    options: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    min_dirty_ratio: float = 0.0,
    state: State | None = None,
    grace_seconds: float = GRACE_SECONDS,
    dry_run: bool = False,
    progress: Progress = SILENT,
    clock: Clock = SYSTEM_CLOCK,
) -> CompactResult:
    """Compact `topics` of a bucket of the remote tier that no broker writes to.

    `options` are those of the store, with keys for encrypted segments. Topics have the configuration that their newest
    segment tells, `overrides` go before it. Without a `state` everything is looked at; with one, partitions of which less
    than `min_dirty_ratio` is new are left out, and only new records count as newer ones. Objects of old segments are
    deleted `grace_seconds` after the new ones are visible.

    UsageError, TaskError, RemoteStorageError. What was published by then stays, and the next run finishes it.
    """
    places = Places(url, dict(options or {}))
    view = places.store
    finish_publications(view, clock=clock)
    listed = list_remote_segments(view, topics, covered=True)
    missing = sorted(set(topics) - {manifest.topic for manifest in listed})
    if missing:
        raise UsageError(f"{url} has no segment of {', '.join(missing)}")
    with Ledger(state, "compact", clock=clock) as ledger:
        planned = [
            bucket.bucket_plan(
                places,
                manifests,
                bucket.config_of(manifests[-1], overrides),
                first_dirty_offset=int(ledger.get(str(manifests[0].topic_id_partition)) or 0),
                now_ms=clock.now_ms(),
            )
            for manifests in bucket.partitions_of(listed)
        ]
        plans = [each for each in planned if each.plan.dirty_ratio >= min_dirty_ratio]
        results: list[CompactedPartition] = []
        replaced: list[SegmentManifest] = []
        staged: list[SegmentManifest] = []
        try:
            for part, result, rewritten in compacted(
                spark,
                [each.plan for each in plans],
                dry_run=dry_run,
                progress=progress,
                discard=lambda made: remove_objects(view, bucket.new_manifests(made)),
            ):
                results.append(result)
                if not dry_run:
                    staged = bucket.new_manifests(rewritten)
                    replaced += bucket.publish_in_bucket(view, plans[part], rewritten)
                    staged = []
                    ledger.add(str(plans[part].partition), plans[part].plan.end_offset)
        finally:
            remove_objects(view, staged)
        if replaced:
            clock.sleep(grace_seconds)
            remove_objects(view, replaced)
    return CompactResult(sorted(results), dry_run)


def _config(
    topic: str,
    configs: Mapping[str, Mapping[str, str]] | None,
    overrides: Mapping[str, str] | None,
) -> LogConfig:
    """InvalidConfigError for a value that cannot be."""
    return LogConfig.from_properties({**(configs or {}).get(topic, {}), **(overrides or {})})
