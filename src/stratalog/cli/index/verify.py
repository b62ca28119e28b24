"""`stratalog index verify`: every entry held against the log."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.cli.index.progress import progress
from stratalog.cli.index.targets import SegmentTarget, Target
from stratalog.cli.tables import on_terminal, print_json, print_table
from stratalog.jobs.index import Finding, verify_offset_index, verify_time_index


def findings_of(segment: SegmentTarget) -> list[Finding]:
    """What is wrong with the indexes of a segment that are asked for."""
    found: list[Finding] = []
    if segment.offset_index is not None:
        found += verify_offset_index(segment.log, segment.offset_index, segment.base_offset)
    if segment.time_index is not None:
        found += verify_time_index(segment.log, segment.time_index, segment.base_offset, is_sealed=segment.is_sealed)
    return found


def verify_target(target: Target, *, as_json: bool) -> int:
    """Print all findings; how many there are."""
    target.require_logs()
    findings: list[Finding] = []
    with progress("verifying", target.log_bytes) as advance:
        for segment in target.segments:
            findings += findings_of(segment)
            advance(segment.log_size)
    print_findings(findings, as_json=as_json)
    if not as_json:
        print(f"{len(target.segments)} segments, {len(findings)} findings")
    return len(findings)


def print_findings(findings: Iterable[Finding], *, as_json: bool) -> None:
    """A table on a terminal, a line each in a pipe."""
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
