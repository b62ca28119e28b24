"""Keep the latest value of each key in closed segments, of any size.

    compact_data_dirs(["/var/lib/stratalog"], topics=["prices"], dry_run=True).report().print()

The result is, batch by batch, that of one run of the log cleaner over everything: `docs/reference/spark_compact.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from stratalog.config import LogConfig
from stratalog.errors import RemoteStorageError, UsageError
from stratalog.inspect import ByteSources, list_remote_segments
from stratalog.jobs.compaction import bucket, data_dirs, local
from stratalog.jobs.compaction.bucket_job import BucketJob, job_above
from stratalog.jobs.compaction.job import compacted
from stratalog.jobs.compaction.metadata_topic import TieredCluster
from stratalog.jobs.compaction.plan import topic_config
from stratalog.jobs.compaction.result import CompactedPartition, CompactResult
from stratalog.jobs.compaction.tiered import Destination, InBucket, InCluster
from stratalog.jobs.executor import THREADS, Exchanger
from stratalog.jobs.ledger import Ledger, State
from stratalog.jobs.progress import SILENT, Progress
from stratalog.log.recovery import hold_all
from stratalog.remote.storage import ObjectLayout, SegmentManifest
from stratalog.remote.transactions import finish_publications, remove_objects
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock
from stratalog.wire.client import ConnectionOptions

#: How long the objects of replaced segments stay by default.
GRACE_SECONDS: Final = 60.0


def compact_data_dirs(
    directories: Sequence[str | Path],
    *,
    topics: Sequence[str] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    overrides: Mapping[str, str] | None = None,
    only_due: bool = False,
    dry_run: bool = False,
    executor: Exchanger = THREADS,
    progress: Progress = SILENT,
    clock: Clock = SYSTEM_CLOCK,
) -> CompactResult:
    """Compact partitions of log directories that no broker serves. Locks the directories while it runs.

    `configs` are the topics' properties under Kafka's names, and `overrides` take precedence (`delete.retention.ms`,
    `segment.bytes`, `min.cleanable.dirty.ratio`, ...). Without `topics`, all topics whose `cleanup.policy` has
    `compact` are compacted. `only_due` skips partitions that a cleaner would find too clean. With `dry_run` nothing is
    changed, and the result estimates the gain.

    Raises UsageError, DataDirError (a broker uses a directory), TaskError, KafkaError or OSError. Segments swapped in
    before the error stay.
    """
    paths = [Path(directory).resolve() for directory in directories]
    if not paths:
        raise UsageError("no log directory is named")
    for path in paths:
        if not REAL_FILESYSTEM.is_dir(path):
            raise UsageError(f"{path} is not a directory; name a broker's log directory")
    with hold_all(paths):
        partitions = [
            partition
            for partition in data_dirs.local_partitions(paths, topics)
            if topics is not None or _config(partition.topic, configs, overrides).compacted
        ]
        planned = [_local_plan(each, _config(each.topic, configs, overrides), clock) for each in partitions]
        plans = [each for each in planned if each.is_due or not only_due]
        results: list[CompactedPartition] = []
        for part, result, rewritten in compacted(
            executor,
            [each.plan for each in plans],
            dry_run=dry_run,
            progress=progress,
            discard=local.discard,
        ):
            if not dry_run:
                local.swap_in(plans[part], rewritten, clock)
            results.append(result)
    return CompactResult(sorted(results), dry_run)


def compact_bucket(
    url: str,
    *,
    topics: Sequence[str],
    options: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    min_dirty_ratio: float = 0.0,
    state: State | None = None,
    kafka: Mapping[str, str] | None = None,
    grace_seconds: float = GRACE_SECONDS,
    dry_run: bool = False,
    executor: Exchanger = THREADS,
    progress: Progress = SILENT,
    clock: Clock = SYSTEM_CLOCK,
) -> CompactResult:
    """Compact `topics` of a bucket of the remote tier.

    If a cluster owns it, `kafka` must have the connection to its brokers (`kafka.bootstrap.servers`, ...): they learn
    of every change through `__remote_log_metadata`.

    `options` are those of the store, with keys for encrypted segments. The configuration of a topic is that in the
    manifest of its newest segment; `overrides` take precedence. Without a `state` everything is compacted. With one,
    partitions whose new part is smaller than `min_dirty_ratio` are skipped, and only new records supersede others.
    Objects of old segments are deleted `grace_seconds` after the new ones are visible.

    Raises UsageError, TaskError, RemoteStorageError, UnreachableError or NotOwnerError. Segments published before the
    error stay, and the next run continues.
    """
    with ExitStack() as stack:
        places = ByteSources(url, dict(options or {}))
        view = places.store
        manifests = _visible(places, topics)
        job = BucketJob(view, topics, job_above(each.segment_id for each in manifests))
        target: Destination = InBucket(view, job, clock)
        if kafka is not None:
            cluster = stack.enter_context(TieredCluster.connected(ConnectionOptions.of(kafka), clock))
            target = InCluster(view, job, cluster, clock)
        if not dry_run:
            target.ensure_allowed(manifests)
            finish_publications(view, clock=clock)
            target.begin(manifests)
            stack.enter_context(_swept(job))
        partitions = list(filter(None, map(target.readable, bucket.partitions_of(manifests))))
        _check_all_there(places, topics, (each for of_partition in partitions for each in of_partition))
        ledger = stack.enter_context(Ledger(state, "compact", clock=clock))
        planned = [_bucket_plan(places, each, overrides, ledger, job, clock) for each in partitions]
        plans = [each for each in planned if each.plan.dirty_ratio >= min_dirty_ratio]
        results: list[CompactedPartition] = []
        for part, result, rewritten in compacted(
            executor,
            [each.plan for each in plans],
            dry_run=dry_run,
            progress=progress,
            discard=lambda made: remove_objects(view, bucket.new_manifests(made)),
        ):
            results.append(result)
            if not dry_run:
                target.replace(plans[part], bucket.new_manifests(rewritten))
                ledger.add(str(plans[part].partition), plans[part].plan.end_offset)
        if not dry_run:
            target.clean_up(grace_seconds)
    return CompactResult(sorted(results), dry_run)


def _visible(places: ByteSources, topics: Sequence[str]) -> list[SegmentManifest]:
    """Return all segments of topics. Raises UsageError for a topic without any, or one that must not be changed."""
    found = list_remote_segments(places.store, topics, covered=True)
    _check_all_there(places, topics, found)
    for each in found:
        if each.layout is not ObjectLayout.STRATALOG:
            raise UsageError(
                f"{places.remote_url}/{each.key()} has the layout of Aiven's plugin, whose objects are never "
                "written;"
                f" bring {each.topic} into another bucket first (`stratalog spark restore`)"
            )
    return found


def _check_all_there(places: ByteSources, topics: Sequence[str], manifests: Iterable[SegmentManifest]) -> None:
    missing = sorted(set(topics) - {each.topic for each in manifests})
    if missing:
        raise UsageError(f"{places.remote_url} has no segment of {', '.join(missing)}")


def _bucket_plan(
    places: ByteSources,
    manifests: Sequence[SegmentManifest],
    overrides: Mapping[str, str] | None,
    ledger: Ledger,
    job: BucketJob,
    clock: Clock,
) -> bucket.BucketPlan:
    return bucket.bucket_plan(
        places,
        manifests,
        bucket.config_of(manifests, overrides),
        first_dirty_offset=int(ledger.get(str(manifests[0].topic_id_partition)) or 0),
        now_ms=clock.now_ms(),
        job=job.id,
    )


@contextmanager
def _swept(job: BucketJob) -> Iterator[None]:
    """Remove leftovers of tasks at the end. The next run removes what they stage later."""
    try:
        yield
    except BaseException:
        with suppress(RemoteStorageError):
            job.sweep()
        raise


def _local_plan(partition: data_dirs.LocalPartition, config: LogConfig, clock: Clock) -> local.LocalPlan:
    """Plan a local partition. Raises UsageError if it is tiered: its tombstones may delete remote records."""
    if config.remote_storage_enable:
        raise UsageError(
            f"{partition.path}: {partition.topic} is tiered (remote.storage.enable); compact its bucket instead"
        )
    return local.plan_of(partition, config, clock)


def _config(
    topic: str,
    configs: Mapping[str, Mapping[str, str]] | None,
    overrides: Mapping[str, str] | None,
) -> LogConfig:
    """Return a topic's configuration. Raises InvalidConfigError for an invalid value."""
    return topic_config({**(configs or {}).get(topic, {}), **(overrides or {})})
