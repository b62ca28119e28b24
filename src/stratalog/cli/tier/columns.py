"""Columns for a terminal, as wide as what is in them; where that is too wide, the less important ones are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

_GAP = 2


class Column(NamedTuple):
    """`rank` 0 is always shown; of the others those with the highest rank go first. Numbers stand flush right."""

    name: str
    rank: int = 0
    is_number: bool = False


def print_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print rows under their names on a terminal. `--json` has what was left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    shown = _that_fit(columns, rows, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for at in shown:
        justify: Literal["right", "left"] = "right" if columns[at].is_number else "left"
        table.add_column(columns[at].name.upper(), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[at]) for at in shown))
    if title is not None:
        console.print(Text(title, style="bold"))
    console.print(table)


def _that_fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    widths = [max([len(column.name), *(len(row[at]) for row in rows)]) + _GAP for at, column in enumerate(columns)]
    shown = list(range(len(columns)))
    while sum(widths[at] for at in shown) - _GAP > width:
        last = max(shown, key=lambda at: columns[at].rank)
        if columns[last].rank == 0:
            break
        shown.remove(last)
    return shown
