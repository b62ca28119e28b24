"""The results of `--json` files as the table of docs/explanation/benchmarks.md.

    python -m benchmarks.table produce.json fetch.json start.json [--page docs/explanation/benchmarks.md]

With `--page` the table replaces the one that stands there, between its two marks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from benchmarks.support.report import figure
from benchmarks.support.results import Row, read_report

HEAD: Final = "| job | ratio | target | stratalog | peer | unit | spread |\n|---|---|---|---|---|---|---|"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def row_text(row: Row) -> str:
    target = row["target"]
    sign = ">=" if row["more_is_better"] else "<="
    wanted = "" if target is None else f"{sign} {target:g}" + ("" if row["is_met"] else ", missed")
    figures = f"{figure(row['ours'])} | {figure(row['peer'])} | {row['unit']}"
    known = row.get("spread")
    wide = "" if known is None else f"{known:.0%}" + (", noisy" if row.get("is_noisy") else "")
    return f"| {row['job']} | **{row['ratio']:.2f}** | {wanted} | {figures} | {wide} |"


def table(rows: Iterable[Row]) -> str:
    return "\n".join([HEAD, *map(row_text, rows)])


def place(machine: dict[str, Any]) -> str:
    """One sentence on the machine."""
    load = f", at a load of {machine['load_at_start']:.1f}" if "load_at_start" in machine else ""
    day = f"{machine['began']}, on" if "began" in machine else "On"
    return (
        f"{day} {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, Linux {machine['kernel']},"
        f" Python {machine['python']}{load}."
    )


def put_into(page: Path, rows: Iterable[Row], machine: dict[str, Any]) -> None:
    """Replace what stands between the marks of a page. SystemExit if it has none."""
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise SystemExit(f"{page}: expected the lines {BEGIN} and {END}, between which the table goes")
    page.write_text(f"{before}{BEGIN}\n{table(rows)}\n\n{place(machine)}\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="what --json wrote")
    parser.add_argument("--page", type=Path, help="whose table is replaced")
    options = parser.parse_args()
    reports = [read_report(path) for path in options.files]
    rows = [row for report in reports for row in report["results"]]
    if options.page is not None:
        put_into(options.page, rows, reports[-1]["machine"])
    else:
        print(f"{table(rows)}\n\n{place(reports[-1]['machine'])}")


if __name__ == "__main__":
    main()
