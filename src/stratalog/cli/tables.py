"""What commands print: a table on a terminal, plain lines in a pipe, one line of JSON where a machine asked for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def on_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty()


def print_json(value: Any) -> None:
    print(json.dumps(value, separators=(",", ":")))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """For a terminal; columns of numbers are set flush right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    lines = [tuple(row) for row in rows]
    table = Table(box=SIMPLE_HEAD)
    for position, column in enumerate(columns):
        numbers = bool(lines) and all(isinstance(row[position], int) for row in lines)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in lines:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    console = Console(markup=False, highlight=False)
    if title is not None:
        console.print(title, style="bold")
    console.print(table)
