"""The one table: columns under their names, as wide as the terminal; in a file, lines that are never wrapped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

#: Wide enough that nothing is wrapped where no terminal sets a width.
FILE_WIDTH: Final = 400
_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class TableColumn:
    """`rank` 0 is always shown; of the others, those with the highest rank are left out where the table is too wide.

    `is_number` None: numbers, set flush right, if every cell is one. A column with a `ratio` shares the width that
    columns without one leave, and is folded; one that is not `folds` stays on one line.
    """

    name: str
    rank: int = 0
    is_number: bool | None = None
    ratio: int | None = None
    folds: bool = True


def print_table(
    columns: Sequence[TableColumn | str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
    *,
    file: TextIO | None = None,
    is_terminal: bool = True,
) -> None:
    """Print rows under the names of their columns. A cell is text, a number, None (empty) or a rich `Text`.

    Where it `is_terminal`, the table is no wider than that; otherwise nothing is wrapped.
    """
    from rich.box import SIMPLE_HEAD  # start-up cost
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = file or sys.stdout
    console = Console(file=out, width=None if is_terminal else FILE_WIDTH, markup=False, highlight=False)
    described = [TableColumn(column) if isinstance(column, str) else column for column in columns]
    cells = [tuple(row) for row in rows]
    shown = _that_fit(described, cells, console.width)
    table = Table(
        box=SIMPLE_HEAD if is_terminal else None,
        show_edge=False,
        pad_edge=False,
        header_style="bold",
        padding=(0, _GAP, 0, 0),
    )
    for at in shown:
        column = described[at]
        is_number = column.is_number
        if is_number is None:
            is_number = bool(cells) and all(_is_number(row[at]) for row in cells)
        table.add_column(
            Text(column.name),
            justify="right" if is_number else "left",
            ratio=column.ratio,
            no_wrap=not column.folds,
            overflow="fold",
        )
    for row in cells:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_shown(cell)) for cell in (row[at] for at in shown)))
    if title is not None:
        console.print(Text(title, style="bold"))
    console.print(table)


def terminal_width() -> int:
    """Return how many characters fit on a line of standard output."""
    from rich.console import Console  # start-up cost

    return Console(file=sys.stdout).width


def _shown(cell: object) -> str:
    return "" if cell is None else str(cell)


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _that_fit(columns: Sequence[TableColumn], rows: Sequence[Sequence[Any]], width: int) -> list[int]:
    shown = list(range(len(columns)))
    if not any(column.rank for column in columns):
        return shown
    widths = [
        max([len(column.name), *(len(_shown(row[at])) for row in rows)]) + _GAP for at, column in enumerate(columns)
    ]
    while sum(widths[at] for at in shown) - _GAP > width:
        last = max(shown, key=lambda at: columns[at].rank)
        if columns[last].rank == 0:
            break
        shown.remove(last)
    return shown
