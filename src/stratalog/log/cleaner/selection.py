"""Choose the next log to clean. Pure. Source: Kafka's `LogCleanerManager.grabFilthiestCompactedLog`, `LogToClean`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stratalog.log.cleaner.cleanable import (
    CleanableLog,
    Dirtiness,
    FirstDirty,
    compaction_delay_ms,
    dirtiness,
    first_dirty_offset,
    first_uncleanable_offset,
)

#: Topic and partition.
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """The facts of a compacted log that the choice needs."""

    partition: TopicPartition
    first_dirty: FirstDirty
    dirtiness: Dirtiness
    #: By how long the log exceeds `max.compaction.lag.ms`; 0 if it does not.
    delay_ms: int
    min_cleanable_ratio: float

    @classmethod
    def of(
        cls,
        partition: TopicPartition,
        facts: CleanableLog,
        *,
        checkpointed: int | None,
        min_cleanable_ratio: float,
        now_ms: int,
    ) -> Candidate:
        """Return the facts of a log whose last cleaning ended at offset `checkpointed`, None if there was none."""
        first_dirty = first_dirty_offset(facts, checkpointed)
        uncleanable = first_uncleanable_offset(facts, first_dirty.offset, now_ms)
        return cls(
            partition=partition,
            first_dirty=first_dirty,
            dirtiness=dirtiness(facts, first_dirty.offset, uncleanable),
            delay_ms=compaction_delay_ms(facts, first_dirty.offset, now_ms),
            min_cleanable_ratio=min_cleanable_ratio,
        )

    @property
    def is_due(self) -> bool:
        """Return whether to clean a log: it is dirty enough, or not clean and over `max.compaction.lag.ms`."""
        if self.dirtiness.total_bytes == 0:
            return False
        if self.delay_ms > 0 and self.dirtiness.cleanable_bytes > 0:
            return True
        return self.dirtiness.ratio > self.min_cleanable_ratio


def filthiest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the log that is due and has the largest share of dirty bytes, the first of equals, or None."""
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda candidate: candidate.dirtiness.ratio, default=None)
