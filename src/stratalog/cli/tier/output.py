"""Findings and mends, as a table and a summary for people or as JSON, one object a line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stratalog.cli.tables import print_json
from stratalog.jobs import size_text
from stratalog.jobs.audit import BucketAudit, Finding, PlannedMend, RepairPlan, Severity
from stratalog.util import uuid_to_base64

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
#: Wide enough that nothing is wrapped where no terminal says how wide it is.
_FILE_WIDTH: Final = 400
#: From this width on a terminal gets all columns side by side.
_WIDE: Final = 150


class Output(Protocol):
    def findings(self, findings: Sequence[Finding]) -> None: ...

    def plan(self, plan: RepairPlan, *, apply: bool) -> None: ...

    def done(self, planned: PlannedMend, text: str, error: str | None) -> None: ...

    def summary(self, result: BucketAudit, seconds: float) -> None: ...


class TextOutput:
    """For people. Terminals get colours and a table as wide as they are; files get lines that are never wrapped."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _FILE_WIDTH
        self._console = Console(file=sys.stdout, width=width, highlight=False, soft_wrap=False)

    def findings(self, findings: Sequence[Finding]) -> None:
        if findings:
            self._console.print((_narrow if self._console.width < _WIDE else _wide)(findings))

    def plan(self, plan: RepairPlan, *, apply: bool) -> None:
        if plan.mends:
            self._console.print("\nRepair " + ("will" if apply else "would"))
            for planned in plan.mends:
                self._console.print(Text(f"  {where(planned.finding)}: {planned.mend.describe()}"))
        else:
            self._console.print("Nothing that was found can be repaired.")
        if plan.too_young:
            self._console.print(
                f"{_count(len(plan.too_young), 'finding')} can be repaired once older than the grace period (--grace)."
            )

    def done(self, planned: PlannedMend, text: str, error: str | None) -> None:
        if error is None:
            self._console.print(Text(f"repaired {where(planned.finding)}: {text}"))
        else:
            self._console.print(Text(f"not repaired {where(planned.finding)}: {error}", style="bold red"))

    def summary(self, result: BucketAudit, seconds: float) -> None:
        read = f", {size_text(result.read_bytes)} read" if result.read_bytes else ""
        self._console.print(
            f"{_count(result.partitions, 'partition')}, {_count(result.segments, 'segment')},"
            f" {_count(result.objects, 'object')}, {size_text(result.bytes)}{read} in {seconds:.1f} s:"
            f" {_counts(result.findings)}"
        )


class JsonOutput:
    """One object a line: `finding`, then for repair `plan` and `repaired`, and last `summary`.

    `docs/reference/tiered_storage.md`.
    """

    def findings(self, findings: Sequence[Finding]) -> None:
        for one in findings:
            print_json(
                {
                    "type": "finding",
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
            )

    def plan(self, plan: RepairPlan, *, apply: bool) -> None:
        for planned in plan.mends:
            print_json(
                {
                    "type": "plan",
                    "what": where(planned.finding),
                    "action": planned.mend.describe(),
                    "apply": apply,
                }
            )
        for one in plan.too_young:
            print_json({"type": "too-young", "what": where(one), "kind": one.kind.value})

    def done(self, planned: PlannedMend, text: str, error: str | None) -> None:
        print_json({"type": "repaired", "what": where(planned.finding), "done": text or None, "error": error})

    def summary(self, result: BucketAudit, seconds: float) -> None:
        by_severity = Counter(one.severity for one in result.findings)
        print_json(
            {
                "type": "summary",
                "partitions": result.partitions,
                "segments": result.segments,
                "objects": result.objects,
                "bytes": result.bytes,
                "readBytes": result.read_bytes,
                "seconds": round(seconds, 3),
                "repairable": sum(one.mend is not None for one in result.findings),
                **{f"{severity.name.lower()}s": by_severity[severity] for severity in reversed(Severity)},
            }
        )


def where(one: Finding) -> str:
    """The object if it is about one, else the segment, else the partition or topic."""
    if one.object_key is not None:
        return one.object_key
    if one.segment_id is not None:
        return f"{_partition(one)} segment {uuid_to_base64(one.segment_id)}"
    return _partition(one)


def _partition(one: Finding) -> str:
    return one.topic if one.partition is None else f"{one.topic}-{one.partition}"


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def _wide(findings: Sequence[Finding]) -> Table:
    table = _table()
    for name, ratio in (
        ("SEVERITY", None),
        ("KIND", None),
        ("PARTITION", 2),
        ("OFFSETS", None),
        ("BYTES", None),
        ("WHERE", 6),
        ("FOUND", 6),
        ("ACTION", 6),
    ):
        justify: Any = "right" if name in ("OFFSETS", "BYTES") else "left"
        table.add_column(name, ratio=ratio, no_wrap=ratio is None, overflow="fold", justify=justify)
    for one in findings:
        table.add_row(
            _severity(one),
            one.kind.value,
            Text(_partition(one)),
            str(one.offsets or ""),
            _bytes(one),
            Text(_place(one)),
            Text(one.text),
            Text(one.action),
        )
    return table


def _narrow(findings: Sequence[Finding]) -> Table:
    table = _table()
    table.add_column("SEVERITY", no_wrap=True)
    table.add_column("WHERE", ratio=2, overflow="fold")
    table.add_column("BYTES", justify="right", no_wrap=True)
    table.add_column("WHAT", ratio=3, overflow="fold")
    for one in findings:
        places = [_partition(one), f"offsets {one.offsets}" if one.offsets else "", _place(one)]
        what = Text.assemble(
            (one.kind.value, "bold"),
            f": {one.text}",
            "\n",
            ("action: ", "green" if one.mend else "dim"),
            one.action,
        )
        table.add_row(_severity(one), Text("\n".join(filter(None, places))), _bytes(one), what)
    return table


def _place(one: Finding) -> str:
    """Within the partition: the name of the object or the segment's id."""
    if one.object_key is not None:
        return one.object_key.rsplit("/", 1)[-1] if one.partition is not None else one.object_key
    return "" if one.segment_id is None else uuid_to_base64(one.segment_id)


def _severity(one: Finding) -> Text:
    return Text(one.severity.name.lower(), style=_STYLES[one.severity])


def _bytes(one: Finding) -> str:
    return f"{one.bytes:,}" if one.bytes else ""


def _counts(findings: Sequence[Finding]) -> str:
    if not findings:
        return "sound"
    by_severity = Counter(one.severity for one in findings)
    parts = [
        _count(by_severity[severity], severity.name.lower()) for severity in reversed(Severity) if by_severity[severity]
    ]
    repairable = sum(one.mend is not None for one in findings)
    return ", ".join(parts) + (f"; {repairable} of them can be repaired (tier repair)" if repairable else "")


def _count(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"
