"""What got slower between two `--json` files, of one benchmark or of all.

    python -m benchmarks.compare OLD NEW [--more-than 0.1]

Ratios are compared, as each is to a peer in the same run: so the files may come from machines of different speed. A row
is slower (or faster) when its ratio changed by more than `--more-than`, and by more than both spreads together leave
open. Exit codes: 0, 1 something got slower.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.support.results import Row, key, pooled, read_report

SLOWER: Final = "slower"
FASTER: Final = "faster"
SAME: Final = "same"


def gain(old: Row, new: Row) -> float:
    """How many times as good the new ratio is; below 1: worse."""
    return float(new["ratio"] / old["ratio"] if new["more_is_better"] else old["ratio"] / new["ratio"])


def verdict(old: Row, new: Row, more_than: float) -> str:
    """Whether the change is more than `more_than` and more than what both spreads leave open."""
    doubt = (old["spread"] or 0.0) + (new["spread"] or 0.0)
    change = gain(old, new)
    if change < 1 / (1 + max(more_than, doubt)):
        return SLOWER
    return FASTER if change > 1 + max(more_than, doubt) else SAME


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--more-than", type=float, default=0.1, help="share that counts (default: 0.1)")
    options = parser.parse_args(argv)
    old = {key(row): row for row in pooled([read_report(options.old)["results"]])}
    new = {key(row): row for row in pooled([read_report(options.new)["results"]])}
    found: dict[str, int] = {SLOWER: 0, FASTER: 0, SAME: 0}
    for name, row in new.items():
        if name not in old:
            print(f"new     {row['job']}: {row['ratio']:.3g}x")
            continue
        what = verdict(old[name], row, options.more_than)
        found[what] += 1
        if what != SAME:
            ratios = f"{old[name]['ratio']:.3g}x, now {row['ratio']:.3g}x"
            print(f"{what}  {row['job']}: {ratios} ({gain(old[name], row):.2f})")
    for name in old.keys() - new.keys():
        print(f"gone    {old[name]['job']}")
    same = f"{found[SAME]} the same within {options.more_than:.0%} or the noise"
    print(f"{found[SLOWER]} slower, {found[FASTER]} faster, {same}")
    return 1 if found[SLOWER] else 0


if __name__ == "__main__":
    sys.exit(main())
