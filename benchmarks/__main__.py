"""`python -m benchmarks all`: every benchmark in turn, again until its figures hold, into one JSON file and the page.

    python -m benchmarks all [--json FILE] [--only start,dump] [--spread 0.1] [--runs 5] [--page PAGE] [--quick]

A benchmark runs again, up to `--runs` times, until the median ratio of each of its jobs is known to within `--spread`
(`measure.spread`). A job of which it is not known even then is marked: the machine is too noisy for it. What has been
measured is written after each benchmark, so a run that is ended keeps what it has. `--page` replaces the table in that
page. Exit codes: 0, 1 a benchmark failed or a job stayed noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite import SUITE, Run
from benchmarks.support.report import machine
from benchmarks.support.results import Row, noisy, pooled, read_report
from benchmarks.table import put_into, table


def run_once(run: Run, *, quick: bool) -> list[Row] | None:
    """One run in a process of its own; None if it failed, which it has said on stderr."""
    with tempfile.TemporaryDirectory(prefix="stratalog-benchmark-") as directory:
        path = Path(directory) / "results.json"
        arguments = run.quick if quick else run.arguments
        command = [sys.executable, "-m", f"benchmarks.{run.name}", *arguments, "--json", str(path)]
        status = subprocess.run(command, check=False).returncode
        if status or not path.exists():
            print(f"{run.name}: ended with status {status}", file=sys.stderr, flush=True)
            return None
        rows: list[Row] = read_report(path)["results"]
        return rows


def measured(run: Run, *, runs_max: int, spread_max: float, quick: bool) -> list[Row] | None:
    """The rows of one benchmark, after as many runs as they took."""
    done: list[list[Row]] = []
    while True:
        rows = run_once(run, quick=quick)
        if rows is None:
            return None
        done.append(rows)
        together = pooled(done)
        unsure = noisy(together, spread_max)
        if not unsure or len(done) >= runs_max:
            return [{**row, "benchmark": run.name, "runs": len(done), "is_noisy": row in unsure} for row in together]
        widest = max(unsure, key=lambda row: float(row["spread"]))
        print(f"{run.name}: again, {widest['job']} is known to within {widest['spread']:.0%} only", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("all",))
    parser.add_argument("--only", help="names of benchmarks, separated by commas (default: all)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"), help="(default: benchmarks.json)")
    parser.add_argument("--page", type=Path, help="whose table is replaced")
    parser.add_argument("--spread", type=float, default=0.1, help="that a median may have (default: 0.1)")
    parser.add_argument("--runs", type=int, default=5, help="of a benchmark at most (default: 5)")
    parser.add_argument("--quick", action="store_true", help="less work and one run: whether all of them still run")
    options = parser.parse_args(argv)
    names = {run.name for run in SUITE}
    only = set(options.only.split(",")) if options.only else names
    if not only <= names:
        parser.error(f"no benchmarks: {', '.join(sorted(only - names))}; there are {', '.join(sorted(names))}")
    rows: list[Row] = []
    failed: list[str] = []
    began = time.strftime("%Y-%m-%d %H:%M")
    where = {**machine(), "load_at_start": os.getloadavg()[0], "began": began}
    for run in SUITE:
        if run.name not in only:
            continue
        found = measured(
            run, runs_max=1 if options.quick else options.runs, spread_max=options.spread, quick=options.quick
        )
        if found is None:
            failed.append(run.name)
            continue
        rows += found
        options.json.write_text(json.dumps({"machine": where, "results": rows}, indent=1) + "\n", encoding="utf-8")
    print(table(rows))
    if options.page is not None and rows:
        put_into(options.page, rows, where)
    unsure = [row for row in rows if row["is_noisy"]]
    for row in unsure:
        print(f"{row['job']}: known to within {row['spread']:.0%} after {row['runs']} runs", file=sys.stderr)
    if unsure and not options.quick:
        print(
            f"the machine is too noisy for {len(unsure)} of {len(rows)} rows (load {os.getloadavg()[0]:.1f})",
            file=sys.stderr,
        )
    for name in failed:
        print(f"{name}: failed", file=sys.stderr)
    return 1 if failed or (unsure and not options.quick) else 0


if __name__ == "__main__":
    sys.exit(main())
