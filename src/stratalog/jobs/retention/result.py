"""The result of a retention forecast: the fate of every segment of every partition, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stratalog.jobs.report import Column, Report, Unit
from stratalog.jobs.retention.fate import Fate

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class PartitionForecast:
    """The fates of one partition's segments now, and with the trial settings (empty without any).

    `directory` is its directory, None for a partition that has only remote segments.
    """

    topic: str
    partition: int
    directory: Path | None
    fates: tuple[Fate, ...]
    tried: tuple[Fate, ...] = ()

    @property
    def effective(self) -> tuple[Fate, ...]:
        return self.tried or self.fates


@dataclass(frozen=True, slots=True)
class RetentionForecast:
    """All partitions, by topic and number, as of `at_ms`. `what_if` has the trial settings."""

    partitions: tuple[PartitionForecast, ...]
    at_ms: int
    what_if: Mapping[str, str] = field(default_factory=dict, hash=False)

    def by_topic(self) -> Report:
        """Return a row for each topic: bytes of both tiers by time of deletion."""
        columns = [
            Column("topic"),
            Column("partitions"),
            Column("segments"),
            Column("bytes", Unit.BYTES),
            Column("due_now", Unit.BYTES),
            Column("within_a_day", Unit.BYTES),
            Column("within_a_week", Unit.BYTES),
            Column("later", Unit.BYTES),
            Column("not_foreseen", Unit.BYTES),
            Column("next_at", Unit.TIME),
        ]
        if self.what_if:
            columns.append(Column("due_now_as_it_is", Unit.BYTES))
        rows = []
        for topic in sorted({each.topic for each in self.partitions}):
            of_topic = [each for each in self.partitions if each.topic == topic]
            rows.append(self._topic_row(topic, of_topic))
        tried = ", ".join(f"{key}={value}" for key, value in self.what_if.items())
        title = "Retention forecast" + (f" with {tried}" if tried else "")
        return Report(title, columns, rows, self._totals())

    def _topic_row(self, topic: str, of_topic: Sequence[PartitionForecast]) -> list[Any]:
        fates = [fate for each in of_topic for fate in each.effective]
        due = [(fate.due.rule_ms, fate.size_bytes) for fate in fates if fate.due is not None]

        def between(after: float, until: float) -> int:
            return sum(size for at, size in due if after < at - self.at_ms <= until)

        row: list[Any] = [
            topic,
            len(of_topic),
            len(fates),
            sum(fate.size_bytes for fate in fates),
            between(float("-inf"), 0),
            between(0, _DAY_MS),
            between(_DAY_MS, 7 * _DAY_MS),
            between(7 * _DAY_MS, float("inf")),
            sum(fate.size_bytes for fate in fates if fate.due is None),
            min((at for at, _ in due), default=None),
        ]
        if self.what_if:
            row.append(sum(f.size_bytes for each in of_topic for f in each.fates if f.is_due(self.at_ms)))
        return row

    def _totals(self) -> dict[str, Any]:
        fates = [fate for each in self.partitions for fate in each.effective]
        return {
            "partitions": len(self.partitions),
            "segments": len(fates),
            "total_bytes": sum(fate.size_bytes for fate in fates),
            "due_now_bytes": sum(fate.size_bytes for fate in fates if fate.is_due(self.at_ms)),
        }

    def by_segment(self) -> Report:
        """Return a row for each segment and tier, with what keeps it."""
        rows = [
            [
                each.topic,
                each.partition,
                fate.tier.value,
                fate.base_offset,
                fate.end_offset,
                fate.size_bytes,
                fate.largest_timestamp_ms,
                fate.rule,
                None if fate.due is None else fate.due.rule_ms,
                None if fate.due is None else fate.due.deleted_by_ms,
                None if fate.due is None else fate.due.files_gone_by_ms,
                " ".join(hold.value for hold in fate.holds),
                fate.text,
            ]
            for each in self.partitions
            for fate in each.effective
        ]
        return Report("Retention forecast by segment", SEGMENT_COLUMNS, rows, self._totals())


SEGMENT_COLUMNS: Final = (
    Column("topic"),
    Column("partition"),
    Column("tier"),
    Column("base_offset"),
    Column("end_offset"),
    Column("bytes", Unit.BYTES),
    Column("newest_record", Unit.TIME),
    Column("rule"),
    Column("at", Unit.TIME),
    Column("deleted_by", Unit.TIME),
    Column("files_gone_by", Unit.TIME),
    Column("kept_by"),
    Column("explanation"),
)
