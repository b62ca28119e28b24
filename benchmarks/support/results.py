"""Results of several runs as one: what `--json` wrote, put together job by job."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.support.measure import spread

#: One job, as `--json` has it.
Row = dict[str, Any]


def read_report(path: Path) -> dict[str, Any]:
    """What a benchmark, or all of them, wrote. SystemExit if it is none."""
    try:
        report: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: cannot be read as what --json writes: {error}") from error
    if not isinstance(report, dict) or "results" not in report:
        raise SystemExit(f'{path}: expected what --json writes, with "results"')
    found: dict[str, Any] = report
    return found


def key(row: Row) -> str:
    """Of the same job beside the same peer."""
    return f"{row['job']} / {row['peer_name']}"


def pooled(runs: Iterable[Iterable[Row]]) -> list[Row]:
    """The rows of several runs of one benchmark: all rounds of a job together, with their spread.

    A row without rounds stays as the last run has it; its spread, and that of a single round, is unknown.
    """
    found: dict[str, Row] = {}
    for run in runs:
        for row in run:
            pairs = [*found.get(key(row), {}).get("pairs", []), *row.get("pairs", [])]
            found[key(row)] = _summed_up(row, pairs)
    return list(found.values())


def _summed_up(row: Row, pairs: list[tuple[float, float]]) -> Row:
    kept = {name: value for name, value in row.items() if name != "rounds"}
    if not pairs:
        return {**kept, "pairs": [], "spread": None}
    ratios = [ours / peer for ours, peer in pairs]
    ratio = statistics.median(ratios)
    target = row["target"]
    is_met = target is None or (ratio >= target if row["more_is_better"] else ratio <= target)
    return {
        **kept,
        "ratio": ratio,
        "ours": statistics.median(ours for ours, _ in pairs),
        "peer": statistics.median(peer for _, peer in pairs),
        "is_met": is_met,
        "pairs": pairs,
        "spread": spread(ratios) if len(ratios) > 1 else None,
    }


def noisy(rows: Iterable[Row], spread_max: float) -> list[Row]:
    """Those whose median may be off by more than `spread_max`."""
    return [row for row in rows if row["spread"] is not None and row["spread"] >= spread_max]
