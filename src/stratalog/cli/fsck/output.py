"""What a check found, as a table and a summary for people or as JSON, one object a line."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stratalog.jobs.fsck import Action, CheckReport, Finding, Severity

_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
#: Wide enough that nothing is wrapped where no terminal says how wide it is.
_FILE_WIDTH: Final = 400
#: From this width on a terminal gets all columns side by side.
_WIDE: Final = 150


class Output(Protocol):
    def findings(self, report: CheckReport) -> None: ...

    def plan(self, actions: Sequence[Action]) -> None: ...

    def done(self, action: Action, error: OSError | None) -> None: ...

    def summary(self, report: CheckReport, seconds: float) -> None: ...


class TextOutput:
    """For people. Terminals get colours and a table as wide as they are; files get lines that are never wrapped."""

    def __init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        self._console = Console(
            file=sys.stdout, width=None if is_terminal else _FILE_WIDTH, highlight=False, soft_wrap=False
        )

    def findings(self, report: CheckReport) -> None:
        if report.findings:
            is_narrow = self._console.width < _WIDE
            self._console.print((_narrow_table if is_narrow else _wide_table)(report.findings))

    def plan(self, actions: Sequence[Action]) -> None:
        if not actions:
            self._console.print("Nothing that was found can be repaired.")
            return
        self._console.print("\nRepair will")
        for action in actions:
            self._console.print(Text(f"  {action.path}: {action.describe()}"))

    def done(self, action: Action, error: OSError | None) -> None:
        if error is None:
            self._console.print(Text(f"repaired {action.path}: {action.describe()}"))
        else:
            self._console.print(Text(f"not repaired {action.path}: {error.strerror or error}", style="bold red"))

    def summary(self, report: CheckReport, seconds: float) -> None:
        partitions = report.partitions
        size = sum(partition.size for partition in partitions)
        self._console.print(
            f"{_count(len(partitions), 'partition')}, {_count(sum(one.segments for one in partitions), 'segment')},"
            f" {_count(sum(one.batches for one in partitions), 'batch', 'batches')}, {size:,} bytes of log in"
            f" {seconds:.1f} s: {_counts(report)}"
        )


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def _wide_table(findings: Sequence[Finding]) -> Table:
    table = _table()
    for name, ratio in (
        ("SEVERITY", None),
        ("PARTITION", 3),
        ("FILE", 4),
        ("POSITION", None),
        ("FOUND", 7),
        ("EXPECTED", 5),
        ("REPAIR", 4),
        ("BYTES", None),
    ):
        justify: Any = "right" if name in ("POSITION", "BYTES") else "left"
        table.add_column(name, ratio=ratio, no_wrap=ratio is None, overflow="fold", justify=justify)
    for one in findings:
        table.add_row(
            _severity(one),
            Text(one.partition or "-"),
            Text(one.path.name),
            Text("-" if one.position is None else str(one.position)),
            Text.assemble((one.kind.value, "bold"), f": {one.found}"),
            Text(one.expected),
            Text(one.action.describe() if one.action else "-"),
            Text(f"{one.size}" if one.size else "-"),
        )
    return table


def _narrow_table(findings: Sequence[Finding]) -> Table:
    """The same in three columns and several lines."""
    table = _table()
    for name in ("SEVERITY", "WHERE", "WHAT"):
        table.add_column(name, no_wrap=name == "SEVERITY", overflow="fold")
    for one in findings:
        where = [one.partition] if one.partition else []
        where.append(one.path.name)
        if one.position is not None:
            where.append(f"position {one.position}" + (f", {one.size} bytes" if one.size else ""))
        what = Text.assemble((one.kind.value, "bold"), f": {one.found}", "\n", ("expected: ", "dim"), one.expected)
        if one.action:
            what.append_text(Text.assemble("\n", ("repair: ", "green"), one.action.describe()))
        table.add_row(_severity(one), Text("\n".join(where)), what)
    return table


def _severity(one: Finding) -> Text:
    return Text(one.severity.name.lower(), style=_STYLES[one.severity])


def _counts(report: CheckReport) -> str:
    by_severity = Counter(one.severity for one in report.findings)
    if not report.findings:
        return "clean"
    parts = [_count(by_severity[severity], severity.name.lower()) for severity in reversed(Severity)]
    repairable = sum(one.action is not None for one in report.findings)
    return ", ".join(parts) + (f"; {repairable} of them can be repaired (--repair)" if repairable else "")


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


class JsonOutput:
    """One object a line: `finding`, then with --repair `plan` and `repaired`, and last `summary`.

    `docs/reference/fsck.md`.
    """

    def _object(self, type_: str, **values: object) -> None:
        print(json.dumps({"type": type_, **values}, ensure_ascii=False, separators=(",", ":")))

    def findings(self, report: CheckReport) -> None:
        for one in report.findings:
            self._object(
                "finding",
                severity=one.severity.name.lower(),
                kind=one.kind.value,
                partition=one.partition or None,
                file=str(one.path),
                position=one.position,
                bytes=one.size,
                found=one.found,
                expected=one.expected,
                repair=one.action.describe() if one.action else None,
            )

    def plan(self, actions: Sequence[Action]) -> None:
        for action in actions:
            self._object("plan", file=str(action.path), action=action.describe())

    def done(self, action: Action, error: OSError | None) -> None:
        reason = None if error is None else error.strerror or str(error)
        self._object("repaired", file=str(action.path), action=action.describe(), error=reason)

    def summary(self, report: CheckReport, seconds: float) -> None:
        by_severity = Counter(one.severity for one in report.findings)
        self._object(
            "summary",
            partitions=len(report.partitions),
            segments=sum(one.segments for one in report.partitions),
            batches=sum(one.batches for one in report.partitions),
            bytes=sum(one.size for one in report.partitions),
            seconds=round(seconds, 3),
            **{f"{severity.name.lower()}s": by_severity[severity] for severity in reversed(Severity)},
        )
