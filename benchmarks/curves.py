"""How figures grow with size, beside the peer: a benchmark at several sizes, as JSON and as pictures.

    python -m benchmarks.curves [dump recovery ...] [--json FILE] [--pictures docs/images/benchmarks]

Each curve is one benchmark of its own, run at every size with its own rounds. The pictures of a curve are drawn when
all of its sizes are measured. `--draw FILE` draws what `--json` wrote once more, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.__main__ import run_once
from benchmarks.suite import Run
from benchmarks.support.chart import Line, draw
from benchmarks.support.report import machine


class Curve(NamedTuple):
    """`arguments` of the benchmark, with `{x}` for a size; `jobs`: patterns of those drawn, and titles."""

    benchmark: str
    x_label: str
    sizes: tuple[int, ...]
    arguments: tuple[str, ...]
    jobs: tuple[tuple[str, str], ...]


CURVES: Final[dict[str, Curve]] = {
    "dump": Curve(
        "dump",
        "size of the segment, MB",
        (3, 10, 30, 100, 300, 1000),
        ("--jobs", "deep-iteration", "--megabytes", "{x}"),
        (("dump, deep-iteration, *", "Dump of every record"),),
    ),
    "recovery": Curve(
        "recovery",
        "unflushed, MB",
        (50, 200, 1000, 4000),
        ("--mb", "{x}"),
        (("loading the logs, *", "Loading the logs after a kill"), ("restart after kill, *", "Restart after a kill")),
    ),
    "partitions": Curve(
        "start",
        "partitions",
        (1, 100, 1_000, 10_000),
        ("--partitions", "{x}", "--idle-seconds", "5", "--rounds", "3"),
        (
            ("start to ready, *", "Restart, by partitions"),
            ("resident memory *", "Memory when idle, by partitions"),
            ("CPU until ready, *", "CPU until ready, by partitions"),
        ),
    ),
    "batches": Curve(
        "produce",
        "bytes in a batch",
        (100, 1_000, 16_000, 100_000, 1_000_000, 10_000_000),
        ("--jobs", "sized", "--batch-bytes", "{x}"),
        (("produce, batches of *", "Produce, by the size of batches"),),
    ),
    "connections": Curve(
        "produce",
        "connections",
        (1, 10, 100, 500, 2_000),
        ("--jobs", "connections", "--connections", "{x}"),
        (("produce, small, * connections", "Small requests, by connections"),),
    ),
    "compaction": Curve(
        "compaction",
        "size of the log, MB",
        (20, 100, 400, 1_000),
        ("--megabytes", "{x}"),
        (("compaction, *MB", "Compaction of 1 KB records"),),
    ),
    "spark_cores": Curve(
        "spark_scan",
        "cores of Spark",
        (1, 2),
        ("--only", "scan", "--codecs", "none", "--rounds", "3", "--spark-cores", "{x}"),
        (
            ("scan of 100-byte records, values and times", "Spark over 100-byte records, by cores"),
            ("scan of 1024-byte records, values and times", "Spark over 1 KB records, by cores"),
        ),
    ),
    "remote": Curve(
        "cold_start",
        "remote segments",
        (1_000, 10_000, 100_000),
        ("--segments", "{x}"),
        (("every remote segment is known", "Start until every remote segment is known"),),
    ),
}


def points(name: str, curve: Curve) -> list[dict[str, Any]]:
    """The rows of every size, each with its `size` and the `curve`. A size that fails is left out, and said."""
    found: list[dict[str, Any]] = []
    for size in curve.sizes:
        arguments = tuple(each.format(x=size) for each in curve.arguments)
        rows = run_once(Run(curve.benchmark, arguments), quick=False) or []
        found += [{**row, "rounds": None, "curve": name, "size": size} for row in rows]
    return found


def pictures(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The pictures of all curves in `rows`, by file name."""
    drawn = {}
    for name, curve in CURVES.items():
        for number, (pattern, title) in enumerate(curve.jobs):
            mine = [row for row in rows if row["curve"] == name and fnmatchcase(row["job"], pattern)]
            if len({row["size"] for row in mine}) < 2:
                continue
            lines = [
                Line("stratalog", [(row["size"], row["ours"]) for row in mine]),
                Line(mine[0]["peer_name"], [(row["size"], row["peer"]) for row in mine]),
            ]
            which = f"{name}_{number + 1}" if number else name
            drawn[f"{which}.svg"] = draw(title, curve.x_label, mine[0]["unit"], lines)
    return drawn


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", nargs="*", help=f"which of {', '.join(CURVES)} (default: all)")
    parser.add_argument("--json", type=Path, default=Path("curves.json"), help="(default: curves.json)")
    parser.add_argument("--pictures", type=Path, default=Path("docs/images/benchmarks"))
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw what --json wrote")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.curves) - CURVES.keys())
    if unknown:
        parser.error(f"no curves: {', '.join(unknown)}; there are {', '.join(CURVES)}")
    if options.draw is not None:
        rows = json.loads(options.draw.read_text(encoding="utf-8"))["results"]
    else:
        rows = []
        for name in options.curves or CURVES:
            rows += points(name, CURVES[name])
            text = json.dumps({"machine": machine(), "results": rows}, indent=1) + "\n"
            options.json.write_text(text, encoding="utf-8")
    options.pictures.mkdir(parents=True, exist_ok=True)
    for file, text in pictures(rows).items():
        (options.pictures / file).write_text(text, encoding="utf-8")
        print(options.pictures / file)


if __name__ == "__main__":
    main()
