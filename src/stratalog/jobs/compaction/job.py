"""Run the steps of a compaction for all partitions, in any tier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from stratalog.jobs.compaction import steps
from stratalog.jobs.compaction.plan import (
    CompactionPlan,
    keys_estimate,
    keys_tasks,
    rewrite_tasks,
)
from stratalog.jobs.compaction.result import CompactedPartition, achieved, foreseen
from stratalog.jobs.compaction.values import Rewritten
from stratalog.jobs.executor import Exchanger
from stratalog.jobs.progress import SILENT, Progress


class Compacted(NamedTuple):
    """A partition with its new segments, in the order of its groups. `part` is its number among the plans."""

    part: int
    result: CompactedPartition
    rewritten: Sequence[Rewritten]


def compacted(
    executor: Exchanger,
    plans: Sequence[CompactionPlan],
    *,
    dry_run: bool = False,
    progress: Progress = SILENT,
    discard: Callable[[Sequence[Rewritten]], object] = lambda _: None,
) -> Iterator[Compacted]:
    """Make the new segments of all partitions, and yield each partition once its own are complete, in no order.

    Segments that would not change are not rewritten; with `dry_run`, none is. If this ends early, `discard` gets the
    new segments of incomplete partitions. Raises TaskError.
    """
    if not plans:
        return
    tasks, buckets = keys_tasks(plans, [keys_estimate(plan) for plan in plans], executor.parallelism)
    with steps.survey(executor, plans, tasks, buckets, progress=progress) as found:
        if dry_run:
            for part, (plan, surveyed) in enumerate(zip(plans, found.partitions, strict=True)):
                yield Compacted(part, foreseen(plan, surveyed), [])
            return
        rewrites = [
            rewrite_tasks(part, plan, surveyed)
            for part, (plan, surveyed) in enumerate(zip(plans, found.partitions, strict=True))
        ]
        done: dict[int, list[Rewritten]] = defaultdict(list)

        def finished(part: int) -> Compacted:
            made = sorted(done.pop(part, []), key=lambda new: new.group)
            return Compacted(part, achieved(plans[part], found.partitions[part], made), made)

        for part, of_part in enumerate(rewrites):
            if not of_part:
                yield finished(part)
        every = [task for of_part in rewrites for task in of_part]
        try:
            for new in steps.rewrite(found, every, progress=progress):
                done[new.part].append(new)
                if len(done[new.part]) == len(rewrites[new.part]):
                    yield finished(new.part)
        finally:
            for made in done.values():
                discard(made)
