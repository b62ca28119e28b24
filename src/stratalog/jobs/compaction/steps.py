"""The three steps of a compaction together: functions over Arrow batches, with two exchanges of packed bytes.

    keys     a row for each bucket of each piece of a segment, and one with the summary of the segment
       | by bucket; within a bucket from the newest segment to the oldest
    newest   a row for each segment of each bucket: the superseded offsets; and facts: summaries, and counts of each
       task | facts to the caller; the others, which are kept, by group; within a group by segment
    rewrite  a row for each group

On Spark these are only two queries, because on a small log planning takes most of the time. Memory of a task: the
buffers of one segment reader, at most one Arrow batch, and the keys of one bucket or the superseded offsets of one
segment.
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final

from stratalog.jobs.compaction.plan import CompactionPlan, PartitionSurvey
from stratalog.jobs.compaction.values import (
    KeysTask,
    RewriteTask,
    Rewritten,
    SegmentSummary,
)
from stratalog.jobs.compaction.work import (
    FACTS,
    KEYS_SCHEMA,
    NEWEST_SCHEMA,
    OUTCOME_SCHEMA,
    Failure,
    KeysWork,
    NewestWork,
    RewriteWork,
)
from stratalog.jobs.executor import Exchanger, TaskError, even_groups
from stratalog.jobs.progress import SILENT, Progress
from stratalog.jobs.rows import StepRows

#: The maximum number of parts of one exchange. More parts only add cost.
_PARTS_MAX: Final = 10_000
_TASKS_A_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class Survey:
    """The results of steps 1 and 2, by partition.

    The executor keeps `rows` until the context of `survey` ends. Groups are numbered across partitions; those of a
    partition begin with its entry in `first_groups`.
    """

    partitions: Sequence[PartitionSurvey]
    rows: StepRows
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
    executor: Exchanger,
    plans: Sequence[CompactionPlan],
    tasks: Sequence[KeysTask],
    buckets: int,
    *,
    progress: Progress = SILENT,
) -> Iterator[Survey]:
    """Run steps 1 and 2. Raises TaskError that names a segment which a worker cannot read."""
    groups = even_groups([task.source.size for task in tasks], _TASKS_A_CORE * executor.parallelism)
    payload = [zlib.compress(pickle.dumps([tasks[number] for number in sorted(group)]), 1) for group in groups]
    dirty = [plan.first_dirty_offset for plan in plans]
    owners, first_groups = owners_of(plans)
    with executor.rows(len(groups)) as numbers:
        newest = (
            numbers.map(KeysWork(payload, dirty), KEYS_SCHEMA)
            .exchange("bucket", min(buckets, _PARTS_MAX), ("bucket", "-segment", "-sequence"))
            .map(NewestWork(owners), NEWEST_SCHEMA)
            .kept()
        )
        progress.begin("keys", 0)
        partitions = surveyed(plans, newest.where("group", FACTS).values("data"))
        progress.end()
        yield Survey(partitions, newest, first_groups)


def surveyed(plans: Sequence[CompactionPlan], facts: Iterable[bytes]) -> list[PartitionSurvey]:
    """Combine the facts of all tasks. Raises TaskError for a segment that could not be read."""
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


def rewrite(found: Survey, tasks: Sequence[RewriteTask], *, progress: Progress = SILENT) -> Iterator[Rewritten]:
    """Run step 3 and yield new segments as they come. Raises TaskError that names a failed group.

    A task that ran twice leaves an extra directory, which the job that chose `RewriteTask.directory` removes.
    """
    if not tasks:
        return
    payload = {found.first_groups[task.part] + task.group: zlib.compress(pickle.dumps(task), 1) for task in tasks}
    rewritten = (
        found.rows.where("group", FACTS, negated=True)
        .exchange("group", min(len(tasks), _PARTS_MAX), ("group", "segment"))
        .map(RewriteWork(payload), OUTCOME_SCHEMA)
    )
    progress.begin("rewriting", sum(source.size for task in tasks for source in task.sources))
    try:
        with closing(rewritten.values("outcome")) as outcomes:
            for data in outcomes:
                outcome = pickle.loads(data)
                if isinstance(outcome, Failure):
                    raise TaskError(f"{outcome.where}: {outcome.error}", outcome.traceback)
                progress.advance(outcome.stats.bytes_read)
                yield outcome
    finally:
        progress.end()
