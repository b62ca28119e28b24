"""Latest value by key over closed segments, of any size.

What stays is, batch by batch, what a cleaning of the log cleaner leaves that sees everything at once;
`docs/spark_compact.md` tells how, and what for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.config.topic import LogConfig
from stratalog.errors import UsageError
from stratalog.spark.pipelines.compaction import data_dirs, local
from stratalog.spark.pipelines.compaction.job import compacted
from stratalog.spark.pipelines.compaction.result import CompactedPartition, CompactResult
from stratalog.spark.pipelines.progress import SILENT, Progress
from stratalog.util.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CompactResult", "CompactedPartition", "compact_data_dirs"]


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


def _config(
    topic: str,
    configs: Mapping[str, Mapping[str, str]] | None,
    overrides: Mapping[str, str] | None,
) -> LogConfig:
    """InvalidConfigError for a value that cannot be."""
    return LogConfig.from_properties({**(configs or {}).get(topic, {}), **(overrides or {})})
