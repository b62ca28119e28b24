"""The steps of a compaction on one thread, with as many buckets as a test asks for."""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.jobs import Threads
from stratalog.jobs.compaction import steps
from stratalog.jobs.compaction.plan import CompactionPlan, keys_tasks, rewrite_tasks
from stratalog.jobs.compaction.values import Rewritten


def compact_in_process(plans: Sequence[CompactionPlan], *, buckets: int = 1) -> list[list[Rewritten]]:
    """The new segments of each partition, in order; `buckets` for each partition."""
    tasks, total = keys_tasks(plans, [buckets * 1_000_000] * len(plans), 1)
    with steps.survey(Threads(1), plans, tasks, total) as found:
        rewrites = [rewrite_tasks(part, plan, found.partitions[part]) for part, plan in enumerate(plans)]
        every = [task for of_part in rewrites for task in of_part]
        made = sorted(steps.rewrite(found, every), key=lambda new: new.group)
    return [[new for new in made if new.part == part] for part in range(len(plans))]
