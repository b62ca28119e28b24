"""Findings of both tiers in one table: what is wrong, where, how many bytes are affected, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

from stratalog.jobs.audit.findings import ObjectFinding
from stratalog.jobs.fsck import FileFinding
from stratalog.jobs.report import Column, Report, Unit
from stratalog.log.format import parse_partition_dir

_COLUMNS: Final = (
    Column("severity"),
    Column("tier"),
    Column("kind"),
    Column("topic"),
    Column("partition"),
    Column("place"),
    Column("first_offset"),
    Column("last_offset"),
    Column("bytes", Unit.BYTES),
    Column("finding"),
    Column("action"),
)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One thing that is wrong. `place` is a file or an object. Outside partitions `partition` is None, `topic` ""."""

    severity: str
    tier: str
    kind: str
    topic: str
    partition: int | None
    place: str
    first_offset: int | None
    last_offset: int | None
    bytes: int
    finding: str
    action: str

    @property
    def is_problem(self) -> bool:
        return self.severity != "note"

    @classmethod
    def of_remote(cls, found: ObjectFinding) -> AuditFinding:
        return cls(
            severity=found.severity.name.lower(),
            tier="remote",
            kind=found.kind.value,
            topic=found.topic,
            partition=found.partition,
            place=found.object_key or "",
            first_offset=None if found.offsets is None else found.offsets.first,
            last_offset=None if found.offsets is None else found.offsets.last,
            bytes=found.bytes,
            finding=found.text,
            action=found.action,
        )

    @classmethod
    def of_local(cls, found: FileFinding) -> AuditFinding:
        parsed = parse_partition_dir(found.partition) if found.partition else None
        where = "" if found.position is None else f" at position {found.position}"
        action = "none: the decision is yours" if found.action is None else f"fsck --repair: {found.action.describe()}"
        return cls(
            severity=found.severity.name.lower(),
            tier="local",
            kind=found.kind.value,
            topic=found.partition if parsed is None else parsed[0],
            partition=None if parsed is None else parsed[1],
            place=str(found.path),
            first_offset=None,
            last_offset=None,
            bytes=found.size,
            finding=f"found {found.found}{where}, expected {found.expected}",
            action=action,
        )


@dataclass(frozen=True, slots=True)
class AuditResult:
    """All findings, worst first within each partition, and the extent of the audit.

    `read_bytes` counts the contents that were read. `known_segments` counts segments that an earlier run found sound
    and that have not changed since.
    """

    findings: tuple[AuditFinding, ...]
    partitions: int
    segments: int
    bytes: int
    read_bytes: int
    known_segments: int

    @property
    def problems(self) -> int:
        """Return the number of findings above the severity of a note."""
        return sum(finding.is_problem for finding in self.findings)

    def report(self) -> Report:
        """Return a row for each finding, and the counts as totals."""
        counts = Counter(finding.severity for finding in self.findings)
        totals = {
            "partitions": self.partitions,
            "segments": self.segments,
            "total_bytes": self.bytes,
            "read_bytes": self.read_bytes,
            "unchanged_segments": self.known_segments,
            "errors": counts["error"],
            "warnings": counts["warning"],
            "notes": counts["note"],
            "affected_bytes": sum(finding.bytes for finding in self.findings if finding.is_problem),
        }
        return Report("Audit", _COLUMNS, [list(astuple(finding)) for finding in self.findings], totals)


def ordered(findings: Sequence[AuditFinding]) -> tuple[AuditFinding, ...]:
    worst = {"error": 0, "warning": 1, "note": 2}
    return tuple(
        sorted(
            findings,
            key=lambda f: (
                f.topic,
                -1 if f.partition is None else f.partition,
                worst[f.severity],
                f.tier,
                -1 if f.first_offset is None else f.first_offset,
                f.place,
            ),
        )
    )
