"""A diagnosis: a problem in one place, and the command that fixes it."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final

from stratalog.cli.out import FindingsPrinter, FindingText, severity_counts
from stratalog.jobs import Finding, Severity, size_text
from stratalog.util import TableColumn

_COLUMNS: Final = (TableColumn("WHERE", ratio=3), TableColumn("FOUND", ratio=5), TableColumn("MEND", ratio=5))
#: Shares of free space below which a disk is nearly full, and practically full.
_NEARLY_FULL: Final = 0.10
_FULL: Final = 0.02


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One problem. `where` is a directory, broker or bucket; `mend` is a command, or an instruction."""

    severity: Severity
    where: str
    kind: str
    found: str
    mend: str


def by_kind(where: str, findings: Iterable[tuple[Finding, str, bool]], look: str, repair: str) -> list[Diagnosis]:
    """Return one diagnosis for each kind and severity of a check's findings.

    A finding comes with its text, and whether the command `repair` fixes it. For others the command `look` shows more.
    """
    groups: dict[tuple[Severity, enum.Enum, bool], list[str]] = {}
    for finding, text, is_repairable in findings:
        groups.setdefault((finding.severity, finding.kind, is_repairable), []).append(text)
    return [
        Diagnosis(
            severity,
            where,
            kind.value,
            _first(texts),
            repair if is_repairable else look,
        )
        for (severity, kind, is_repairable), texts in groups.items()
        if severity > Severity.NOTE
    ]


def one_of(severity: Severity, where: str, kind: str, texts: Sequence[str], mend: str) -> list[Diagnosis]:
    """Return one diagnosis for texts of a kind, or none without texts."""
    return [Diagnosis(severity, where, kind, _first(texts), mend)] if texts else []


def _first(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{len(texts):,} times, first: {texts[0]}"


def room(where: str, free: int, total: int) -> list[Diagnosis]:
    """Diagnose the free space of a disk."""
    if total <= 0 or free >= total * _NEARLY_FULL:
        return []
    severity = Severity.ERROR if free < total * _FULL else Severity.WARNING
    found = f"{size_text(free)} of {size_text(total)} are free"
    mend = (
        "keep less: stratalog configs alter --entity-type topics --entity-name TOPIC --add-config retention.bytes=N; "
        "docs/how-to/disk_full.md lists other ways"
    )
    return [Diagnosis(severity, where, "disk-full", found, mend)]


def command(*words: str) -> str:
    """Return a command of ours, to be copied into a shell."""
    return " ".join(("stratalog", *map(quote, words)))


def print_all(diagnoses: Sequence[Diagnosis], looked_at: Sequence[str], *, as_json: bool) -> None:
    """Print the diagnoses, most urgent first, and a summary."""
    printer = FindingsPrinter(_COLUMNS, as_json=as_json)
    printer.findings(sorted(diagnoses, key=lambda each: -each.severity), _text, _object)
    severities = [each.severity.name.lower() for each in diagnoses]
    counts = severity_counts(severities, 0, "") if diagnoses else "nothing is wrong"
    sums = Counter(severities)
    values = {"looked_at": list(looked_at), **{f"{each.name.lower()}s": sums[each.name.lower()] for each in Severity}}
    printer.line(f"{', '.join(looked_at)}: {counts}", "summary", values)


def _text(each: Diagnosis) -> FindingText:
    return FindingText(
        each.severity.name.lower(),
        each.kind,
        each.found,
        cells=(each.where, f"{each.kind}: {each.found}", each.mend),
        places=(each.where,),
        details={"mend": each.mend},
    )


def _object(each: Diagnosis) -> dict[str, Any]:
    return {
        "severity": each.severity.name.lower(),
        "where": each.where,
        "kind": each.kind,
        "found": each.found,
        "mend": each.mend,
    }
