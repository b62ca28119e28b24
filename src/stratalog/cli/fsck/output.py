"""The findings of a check, for people or as JSON, one object a line; `docs/reference/fsck.md` lists the fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from stratalog.cli.out import FindingsPrinter, FindingText, counted, severity_counts
from stratalog.jobs import Severity
from stratalog.jobs.fsck import CheckReport, FileAction, FileFinding
from stratalog.util import TableColumn

_COLUMNS: Final = (
    TableColumn("PARTITION", ratio=3),
    TableColumn("FILE", ratio=4),
    TableColumn("POSITION", is_number=True, folds=False),
    TableColumn("FOUND", ratio=7),
    TableColumn("EXPECTED", ratio=5),
    TableColumn("REPAIR", ratio=4),
    TableColumn("BYTES", is_number=True, folds=False),
)


class CheckOutput:
    """Prints one run of `stratalog fsck`."""

    def __init__(self, *, as_json: bool) -> None:
        self._printer = FindingsPrinter(_COLUMNS, as_json=as_json)

    def findings(self, report: CheckReport) -> None:
        self._printer.findings(report.findings, _text, _object)

    def plan(self, actions: Sequence[FileAction]) -> None:
        self._printer.line("\nRepair will" if actions else "None of the findings can be repaired.")
        for one in actions:
            text = one.describe()
            self._printer.line(f"  {one.path}: {text}", "plan", {"file": str(one.path), "action": text})

    def done(self, action: FileAction, error: OSError | None) -> None:
        path, text = str(action.path), action.describe()
        reason = None if error is None else error.strerror or str(error)
        self._printer.done(path, text, reason, {"file": path, "action": text, "error": reason})

    def summary(self, report: CheckReport, seconds: float) -> None:
        sums = {
            "partitions": len(report.partitions),
            "segments": sum(one.segments for one in report.partitions),
            "batches": sum(one.batches for one in report.partitions),
            "bytes": sum(one.size for one in report.partitions),
        }
        by_severity = Counter(one.severity for one in report.findings)
        self._printer.line(
            f"{counted(sums['partitions'], 'partition')}, {counted(sums['segments'], 'segment')},"
            f" {counted(sums['batches'], 'batch', 'batches')}, {sums['bytes']:,} bytes of log in"
            f" {seconds:.1f} s: {_counts(report.findings)}",
            "summary",
            {
                **sums,
                "seconds": round(seconds, 3),
                **{f"{severity.name.lower()}s": by_severity[severity] for severity in reversed(Severity)},
            },
        )


def _text(one: FileFinding) -> FindingText:
    places = [one.partition] if one.partition else []
    places.append(one.path.name)
    if one.position is not None:
        places.append(f"position {one.position}" + (f", {one.size} bytes" if one.size else ""))
    repair = one.action.describe() if one.action else ""
    return FindingText(
        one.severity.name.lower(),
        one.kind.value,
        one.found,
        cells=(
            one.partition or "-",
            one.path.name,
            "-" if one.position is None else str(one.position),
            f"{one.kind.value}: {one.found}",
            one.expected,
            repair or "-",
            f"{one.size}" if one.size else "-",
        ),
        places=tuple(places),
        details={"expected": one.expected, **({"repair": repair} if repair else {})},
    )


def _object(one: FileFinding) -> dict[str, Any]:
    return {
        "severity": one.severity.name.lower(),
        "kind": one.kind.value,
        "partition": one.partition or None,
        "file": str(one.path),
        "position": one.position,
        "bytes": one.size,
        "found": one.found,
        "expected": one.expected,
        "repair": one.action.describe() if one.action else None,
    }


def _counts(findings: Sequence[FileFinding]) -> str:
    if not findings:
        return "clean"
    severities = [one.severity.name.lower() for one in findings]
    repairable = sum(one.action is not None for one in findings)
    return severity_counts(severities, repairable, "--repair", with_zeros=True)
