"""Findings and repairs of a bucket, for people or as JSON lines: docs/reference/tiered_storage.md has the fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from stratalog.cli.out import FindingsPrinter, FindingText, counted, severity_counts
from stratalog.jobs import Severity, size_text
from stratalog.jobs.audit import BucketAudit, ObjectFinding, PlannedMend, RepairPlan
from stratalog.util import TableColumn, uuid_to_base64

_COLUMNS: Final = (
    TableColumn("KIND", folds=False),
    TableColumn("PARTITION", ratio=2),
    TableColumn("OFFSETS", is_number=True, folds=False),
    TableColumn("BYTES", is_number=True, folds=False),
    TableColumn("WHERE", ratio=6),
    TableColumn("FOUND", ratio=6),
    TableColumn("ACTION", ratio=6),
)


class AuditOutput:
    """Prints one run of `stratalog tier audit` or `repair`."""

    def __init__(self, *, as_json: bool) -> None:
        self._printer = FindingsPrinter(_COLUMNS, as_json=as_json)

    def findings(self, findings: Sequence[ObjectFinding]) -> None:
        self._printer.findings(findings, _text, _object)

    def plan(self, plan: RepairPlan, *, apply: bool) -> None:
        heading = "\nRepair " + ("will" if apply else "would")
        self._printer.line(heading if plan.mends else "None of the findings can be repaired.")
        for planned in plan.mends:
            place, action = where(planned.finding), planned.mend.describe()
            self._printer.line(f"  {place}: {action}", "plan", {"what": place, "action": action, "apply": apply})
        if plan.too_young:
            self._printer.line(
                f"{counted(len(plan.too_young), 'finding')} can be repaired once older than the grace period (--grace)."
            )
        for one in plan.too_young:
            self._printer.document("too-young", {"what": where(one), "kind": one.kind.value})

    def done(self, planned: PlannedMend, text: str, error: str | None) -> None:
        place = where(planned.finding)
        self._printer.done(place, text, error, {"what": place, "done": text or None, "error": error})

    def summary(self, result: BucketAudit, seconds: float) -> None:
        read = f", {size_text(result.read_bytes)} read" if result.read_bytes else ""
        by_severity = Counter(one.severity for one in result.findings)
        self._printer.line(
            f"{counted(result.partitions, 'partition')}, {counted(result.segments, 'segment')},"
            f" {counted(result.objects, 'object')}, {size_text(result.bytes)}{read} in {seconds:.1f} s:"
            f" {_counts(result.findings)}",
            "summary",
            {
                "partitions": result.partitions,
                "segments": result.segments,
                "objects": result.objects,
                "bytes": result.bytes,
                "readBytes": result.read_bytes,
                "seconds": round(seconds, 3),
                "repairable": sum(one.mend is not None for one in result.findings),
                **{f"{severity.name.lower()}s": by_severity[severity] for severity in reversed(Severity)},
            },
        )


def where(one: ObjectFinding) -> str:
    """Return the object if the finding is about one, otherwise the segment, the partition or the topic."""
    if one.object_key is not None:
        return one.object_key
    if one.segment_id is not None:
        return f"{_partition(one)} segment {uuid_to_base64(one.segment_id)}"
    return _partition(one)


def _partition(one: ObjectFinding) -> str:
    return one.topic if one.partition is None else f"{one.topic}-{one.partition}"


def _text(one: ObjectFinding) -> FindingText:
    size = f"{one.bytes:,}" if one.bytes else ""
    place = _place(one)
    places = (_partition(one), f"offsets {one.offsets}" if one.offsets else "", place, f"{size} bytes" if size else "")
    return FindingText(
        one.severity.name.lower(),
        one.kind.value,
        one.text,
        cells=(one.kind.value, _partition(one), str(one.offsets or ""), size, place, one.text, one.action),
        places=tuple(filter(None, places)),
        details={"repair" if one.mend else "action": one.action},
    )


def _place(one: ObjectFinding) -> str:
    """Return the place within the partition: the name of the object or the segment's id."""
    if one.object_key is not None:
        return one.object_key.rsplit("/", 1)[-1] if one.partition is not None else one.object_key
    return "" if one.segment_id is None else uuid_to_base64(one.segment_id)


def _object(one: ObjectFinding) -> dict[str, Any]:
    return {
        "severity": one.severity.name.lower(),
        "kind": one.kind.value,
        "topic": one.topic or None,
        "partition": one.partition,
        "segmentId": None if one.segment_id is None else uuid_to_base64(one.segment_id),
        "key": one.object_key,
        "offsets": None if one.offsets is None else [one.offsets.first, one.offsets.last],
        "bytes": one.bytes,
        "text": one.text,
        "action": one.action,
        "repair": None if one.mend is None else one.mend.describe(),
    }


def _counts(findings: Sequence[ObjectFinding]) -> str:
    if not findings:
        return "sound"
    severities = [one.severity.name.lower() for one in findings]
    return severity_counts(severities, sum(one.mend is not None for one in findings), "tier repair")
