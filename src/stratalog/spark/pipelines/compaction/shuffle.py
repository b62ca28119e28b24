"""How the steps run on Spark: three stages of Python functions over Arrow, with two shuffles of packed bytes between.

    keys     a row for each bucket of each piece of a segment, and one with the summary of the segment
       | by bucket; within a bucket from the newest segment to the oldest
    newest   a row for each segment of each bucket: the superseded offsets; and facts: summaries, and counts of each
       task | facts to the driver; the others, which Spark keeps, by group; within a group by segment
    rewrite  a row for each group

Two queries in all, without anything else for Spark to plan: on a small log that is what takes most of the time.

No RDDs: it runs in classic sessions and over Spark Connect. Memory of a task: the buffers of one segment reader and at
most one Arrow batch, and besides the keys of one bucket, or the superseded offsets of one segment. Spark spills the
rest.
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stratalog.jobs import SILENT, Progress, TaskError
from stratalog.spark.executor import plan_groups, stream_column
from stratalog.spark.pipelines.compaction.plan import CompactionPlan, PartitionSurvey
from stratalog.spark.pipelines.compaction.values import (
    KeysTask,
    RewriteTask,
    Rewritten,
    SegmentSummary,
)
from stratalog.spark.pipelines.compaction.work import (
    FACTS,
    KEYS_SCHEMA,
    NEWEST_SCHEMA,
    Failure,
    KeysWork,
    NewestWork,
    RewriteWork,
)

#: More partitions of one shuffle only cost.
_PARTITIONS_MAX: Final = 10_000
_TASKS_A_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class Survey:
    """The results of steps 1 and 2, by partition.

    Spark keeps `frame` until the `survey` ends. Its groups are numbered across partitions; those of a partition begin
    with its `first_groups`.
    """

    partitions: Sequence[PartitionSurvey]
    frame: DataFrame
    first_groups: Sequence[int]


def owners_of(plans: Sequence[CompactionPlan]) -> tuple[dict[tuple[int, int], tuple[int, int]], list[int]]:
    """Return the group of each segment and its number in that group, and the first group of each partition.

    Groups are numbered across partitions.
    """
    owners: dict[tuple[int, int], tuple[int, int]] = {}
    first_groups, group = [], 0
    for part, plan in enumerate(plans):
        first_groups.append(group)
        for segments in plan.groups():
            owners |= {(part, segment): (group, number) for number, segment in enumerate(segments)}
            group += 1
    return owners, first_groups


@contextmanager
def survey(
    spark: SparkSession,
    plans: Sequence[CompactionPlan],
    tasks: Sequence[KeysTask],
    buckets: int,
    *,
    cores: int,
    progress: Progress = SILENT,
) -> Iterator[Survey]:
    """Do steps 1 and 2. TaskError, naming the segment, for what a worker cannot read."""
    groups = plan_groups([task.source.size for task in tasks], _TASKS_A_CORE * cores)
    payload = [zlib.compress(pickle.dumps([tasks[number] for number in sorted(group)]), 1) for group in groups]
    dirty = [plan.first_dirty_offset for plan in plans]
    keys = spark.range(0, len(groups), 1, max(len(groups), 1)).mapInArrow(KeysWork(payload, dirty), KEYS_SCHEMA)
    partitions = min(buckets, _PARTITIONS_MAX)
    owners, first_groups = owners_of(plans)
    newest = (
        keys.repartitionById(partitions, (F.col("bucket") % partitions).cast("int"))
        .sortWithinPartitions("bucket", F.desc("segment"), F.desc("sequence"))
        .mapInArrow(NewestWork(owners), NEWEST_SCHEMA)
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    progress.begin("keys", 0)
    try:
        facts = newest.where(F.col("group") == FACTS).select("data").collect()
        progress.end()
        yield Survey(surveyed(plans, (row[0] for row in facts)), newest, first_groups)
    finally:
        newest.unpersist()


def surveyed(plans: Sequence[CompactionPlan], facts: Iterable[bytes]) -> list[PartitionSurvey]:
    """Return what all facts together say. Raises TaskError for a segment that could not be read."""
    summaries: list[list[SegmentSummary]] = [[] for _ in plans]
    superseded: Counter[tuple[int, int]] = Counter()
    seconds: Counter[int] = Counter()
    for data in facts:
        fact = pickle.loads(data)
        if isinstance(fact, Failure):
            raise TaskError(f"{fact.where}: {fact.error}", fact.traceback)
        if isinstance(fact, SegmentSummary):
            summaries[fact.part].append(fact)
        else:
            superseded.update(fact.superseded)
            seconds.update(fact.seconds)
    return [
        PartitionSurvey(
            sorted(summaries[part], key=lambda summary: summary.segment),
            [superseded[part, segment] for segment in range(len(plan.sources))],
            seconds[part],
        )
        for part, plan in enumerate(plans)
    ]


def rewrite(
    spark: SparkSession, found: Survey, tasks: Sequence[RewriteTask], *, progress: Progress = SILENT
) -> Iterator[Rewritten]:
    """Do step 3 and yield new segments as they come. Raises TaskError, naming the group, for a worker's errors.

    A task that ran twice leaves an extra directory. The job that chose `RewriteTask.directory` clears it.
    """
    if not tasks:
        return
    payload = {found.first_groups[task.part] + task.group: zlib.compress(pickle.dumps(task), 1) for task in tasks}
    partitions = min(len(tasks), _PARTITIONS_MAX)
    frame = (
        found.frame.where(F.col("group") != FACTS)
        .repartitionById(partitions, F.col("group") % partitions)
        .sortWithinPartitions("group", "segment")
        .mapInArrow(RewriteWork(payload), "outcome binary")
    )
    progress.begin("rewriting", sum(source.size for task in tasks for source in task.sources))
    try:
        with closing(stream_column(spark, frame)) as outcomes:
            for data in outcomes:
                outcome = pickle.loads(data)
                if isinstance(outcome, Failure):
                    raise TaskError(f"{outcome.where}: {outcome.error}", outcome.traceback)
                progress.advance(outcome.stats.bytes_read)
                yield outcome
    finally:
        progress.end()
