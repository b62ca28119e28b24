"""Lines of text and of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from stratalog.util import TableColumn, print_table


def on_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(value, separators=(",", ":")))


def print_tabbed(*cells: object) -> None:
    """Print one tab-separated line."""
    print(*cells, sep="\t")


def print_rows(
    columns: Sequence[TableColumn | str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
) -> None:
    """Print a table on a terminal, and tab-separated lines in a pipe."""
    if on_terminal():
        print_table(columns, rows, title)
    else:
        for row in rows:
            print_tabbed(*row)


def notice(text: str) -> None:
    """Print one line on stderr, marked as this program's."""
    print(f"stratalog: {text}", file=sys.stderr)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: "1 segment", "1,234 segments"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
