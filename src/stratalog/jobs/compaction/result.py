"""The result of a compaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from stratalog.jobs import Column, Report, Unit
from stratalog.jobs.compaction.plan import CompactionPlan, PartitionSurvey
from stratalog.jobs.compaction.values import Rewritten

_COLUMNS: Final = (
    Column("topic"),
    Column("partition"),
    Column("segments_in"),
    Column("segments_out"),
    Column("bytes_in", Unit.BYTES),
    Column("bytes_out", Unit.BYTES),
    Column("records_in"),
    Column("records_out"),
    Column("superseded"),
    Column("aborted"),
    Column("without_key"),
    Column("tombstones"),
    Column("core_seconds"),
    Column("mb_per_core_second"),
)


@dataclass(frozen=True, slots=True, order=True)
class CompactedPartition:
    """One partition, before and after. A dry run estimates `bytes_out` in proportion to the records.

    `tombstones` counts those before the compaction. `core_seconds` is the time of the tasks of all steps, until the
    result was durable on disk or in the store.
    """

    topic: str
    partition: int
    segments_in: int
    segments_out: int
    bytes_in: int
    bytes_out: int
    records_in: int
    records_out: int
    superseded: int
    aborted: int
    without_key: int
    tombstones: int
    core_seconds: float

    @property
    def mb_per_core_second(self) -> float:
        """The speed of one core in megabytes (10^6) per second."""
        return self.bytes_in / 1e6 / self.core_seconds if self.core_seconds else 0.0


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of a compaction, by topic and partition."""

    partitions: Sequence[CompactedPartition]
    dry_run: bool

    @property
    def bytes_gained(self) -> int:
        return sum(each.bytes_in - each.bytes_out for each in self.partitions)

    @property
    def records_gained(self) -> int:
        return sum(each.records_in - each.records_out for each in self.partitions)

    def report(self) -> Report:
        rows = []
        for each in self.partitions:
            cells = [getattr(each, column.name) for column in _COLUMNS]
            rows.append([round(cell, 1) if isinstance(cell, float) else cell for cell in cells])
        return Report(
            "estimated gain of a compaction" if self.dry_run else "compaction",
            _COLUMNS,
            rows,
            {
                "partitions": len(self.partitions),
                "bytes_gained": self.bytes_gained,
                "records_gained": self.records_gained,
            },
        )


def foreseen(plan: CompactionPlan, surveyed: PartitionSurvey) -> CompactedPartition:
    """Return what a compaction would do to a partition."""
    summaries = surveyed.summaries
    gone = [
        superseded + summary.keyless + summary.aborted
        for superseded, summary in zip(surveyed.superseded, summaries, strict=True)
    ]
    kept = sum(
        source.size * (summary.records - lost) // max(summary.records, 1)
        for source, summary, lost in zip(plan.sources, summaries, gone, strict=True)
    )
    records = sum(summary.records for summary in summaries)
    return CompactedPartition(
        topic=plan.topic,
        partition=plan.partition,
        segments_in=len(plan.sources),
        segments_out=len(plan.groups()),
        bytes_in=plan.bytes,
        bytes_out=kept,
        records_in=records,
        records_out=records - sum(gone),
        superseded=sum(surveyed.superseded),
        aborted=sum(summary.aborted for summary in summaries),
        without_key=sum(summary.keyless for summary in summaries),
        tombstones=sum(summary.tombstones for summary in summaries),
        core_seconds=sum(summary.seconds for summary in summaries) + surveyed.seconds,
    )


def achieved(plan: CompactionPlan, surveyed: PartitionSurvey, rewritten: Sequence[Rewritten]) -> CompactedPartition:
    """Return the result for a partition whose `groups` were rewritten."""
    before = foreseen(plan, surveyed)
    stats = [new.stats for new in rewritten]
    return replace(
        before,
        bytes_out=before.bytes_in - sum(each.bytes_read - each.bytes_written for each in stats),
        records_out=before.records_in - sum(each.records_read - each.records_written for each in stats),
        core_seconds=before.core_seconds + sum(each.seconds for each in stats),
    )
