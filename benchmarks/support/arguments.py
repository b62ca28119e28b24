"""The command line that benchmarks share."""

from __future__ import annotations

import argparse


def benchmark_parser(
    description: str | None, *, rounds: int | None = None, unmeasured: int = 0
) -> argparse.ArgumentParser:
    """A parser with `--json`, and with `--rounds` where a default is given, after `unmeasured` rounds to warm up."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds is not None:
        after = f", after {unmeasured} that do not count" if unmeasured else ""
        parser.add_argument("--rounds", type=int, default=rounds, help=f"that count{after} (default: {rounds})")
    parser.add_argument("--json", help="write all samples there (- for stdout)")
    return parser
