"""The results of `--json` files as the table of docs/explanation/benchmarks.md.

python -m benchmarks.table produce.json fetch.json start.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.support.report import figure

HEAD = "| job | ratio | target | stratalog | peer | unit |\n|---|---|---|---|---|---|"


def row(result: dict[str, Any]) -> str:
    target = result["target"]
    sign = ">=" if result["more_is_better"] else "<="
    wanted = "" if target is None else f"{sign} {target:g}" + ("" if result["is_met"] else ", missed")
    figures = f"{figure(result['ours'])} | {figure(result['peer'])} | {result['unit']}"
    return f"| {result['job']} | **{result['ratio']:.2f}** | {wanted} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="what --json wrote")
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in parser.parse_args().files]
    print(HEAD)
    for report in reports:
        for result in report["results"]:
            print(row(result))
    machine = reports[-1]["machine"]
    print(
        f"\nOn {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, Linux {machine['kernel']},"
        f" Python {machine['python']}."
    )


if __name__ == "__main__":
    main()
