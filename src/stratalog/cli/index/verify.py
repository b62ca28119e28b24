"""`stratalog index verify`: compare every entry with the log."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.cli.out import on_terminal, print_json
from stratalog.jobs import terminal_progress
from stratalog.jobs.index import IndexFault, Target, verify_targets
from stratalog.util import print_table


def verify_target(target: Target, *, as_json: bool) -> int:
    """Print all findings and return their number."""
    target.require_logs()
    findings = verify_targets(target.segments, progress=terminal_progress())
    print_findings(findings, as_json=as_json)
    if not as_json:
        print(f"{len(target.segments)} segments, {len(findings)} findings")
    return len(findings)


def print_findings(findings: Iterable[IndexFault], *, as_json: bool) -> None:
    """Print a table on a terminal, and lines in a pipe."""
    rows = list(findings)
    if as_json:
        for finding in rows:
            print_json(
                {
                    "path": str(finding.path),
                    "kind": finding.kind.value,
                    "slot": finding.slot,
                    "message": finding.message,
                }
            )
    elif rows and on_terminal():
        print_table(
            ("index", "finding", "entry", "what"),
            [(f"{f.path.parent.name}/{f.path.name}", f.kind.value, f.slot, f.message) for f in rows],
        )
    else:
        for finding in rows:
            print(finding)
