"""Lines of text and of JSON."""

from __future__ import annotations

import json
import sys
from typing import Any


def on_terminal() -> bool:
    """Return whether a person looks at standard output."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(value, separators=(",", ":")))


def print_tabbed(*cells: object) -> None:
    """Print one line for a pipe, with tabs between the cells."""
    print(*cells, sep="\t")


def notice(text: str) -> None:
    """Print one line on stderr, marked as this program's."""
    print(f"stratalog: {text}", file=sys.stderr)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: "1 segment", "1,234 segments"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
