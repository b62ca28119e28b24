"""The report of a job: a table for people and one line of JSON for machines, from the same rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TextIO

from stratalog.util import TableColumn, print_table

if TYPE_CHECKING:
    from rich.console import Console

#: Cells and headings up to this many characters are not folded.
_SHORT: Final = 24
#: The minimum width, in characters, of a column of longer cells, which are folded.
_LONG_MIN: Final = 20
#: The characters between two columns.
_BETWEEN: Final = 3


class Unit(Enum):
    """The display format of a number. JSON has the plain number."""

    PLAIN = "plain"
    #: bytes, with a binary unit
    BYTES = "bytes"
    #: milliseconds since the epoch, as a time in UTC
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `name` is the key in JSON and, with spaces for underscores, the heading."""

    name: str
    unit: Unit = Unit.PLAIN

    @property
    def heading(self) -> str:
        return self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Report:
    """Rows under `columns`, with cells in the same order, and `totals`, which are printed below the table.

    Cells are str, int, float, bool or None. For JSON output alone they may be any JSON value.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    totals: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return one line: {"title": .., "rows": [{column: cell}], "totals": {..}}."""
        names = [column.name for column in self.columns]
        rows = [dict(zip(names, row, strict=True)) for row in self.rows]
        document = {"title": self.title, "rows": rows, "totals": dict(self.totals)}
        return json.dumps(document, separators=(",", ":"))

    def print(self, *, as_json: bool = False, file: TextIO | None = None) -> None:
        """Print to `file` (standard output): a table on a terminal, lines with tabs in a pipe, or JSON.

        If the terminal is too narrow for a table, each row becomes a paragraph.
        """
        out = file or sys.stdout
        if as_json:
            print(self.to_json(), file=out)
        elif out.isatty():
            self._print_table(out)
        else:
            self._print_lines(out)

    def _print_table(self, out: TextIO) -> None:
        from rich.console import Console  # start-up cost

        console = Console(file=out, markup=False, highlight=False)
        console.print(self.title, style="bold")
        if self.rows and not self._fits(console.width):
            self._print_paragraphs(console)
        elif self.rows:
            columns = [
                TableColumn(column.heading, is_number=all(isinstance(row[at], int | float) for row in self.rows))
                for at, column in enumerate(self.columns)
            ]
            print_table(columns, self._shown(), file=out)
        if self.totals:
            console.print(self._totals_text())

    def _fits(self, width: int) -> bool:
        """Return whether the short columns leave enough room for those with long text."""
        cells = [[column.heading for column in self.columns], *self._shown()]
        widths = [max(len(row[position]) for row in cells) for position in range(len(self.columns))]
        short = [each for each in widths if each <= _SHORT]
        left = width - sum(short) - _BETWEEN * len(widths)
        return left >= _LONG_MIN * (len(widths) - len(short))

    def _print_paragraphs(self, console: Console) -> None:
        """Print short cells on one line and each long cell on a separate line. Omit empty cells."""
        from rich.padding import Padding  # start-up cost

        for row in self._shown():
            cells = [(column.heading, cell) for column, cell in zip(self.columns, row, strict=True) if cell]
            console.print()
            console.print(", ".join(f"{name}: {cell}" for name, cell in cells if len(cell) <= _SHORT))
            for name, cell in cells:
                if len(cell) > _SHORT:
                    console.print(Padding(f"{name}: {cell}", (0, 0, 0, 2)))
        console.print()

    def _print_lines(self, out: TextIO) -> None:
        print(self.title, file=out)
        if self.rows:
            print("\t".join(column.heading for column in self.columns), file=out)
        for row in self._shown():
            print("\t".join(row), file=out)
        if self.totals:
            print(self._totals_text(), file=out)

    def _shown(self) -> list[list[str]]:
        return [[shown(cell, column.unit) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]

    def _totals_text(self) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')}: {shown(value, Unit.BYTES if name.endswith('bytes') else Unit.PLAIN)}"
            for name, value in self.totals.items()
        )


def shown(cell: Any, unit: Unit = Unit.PLAIN) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int) and unit is Unit.BYTES:
        return size_text(cell)
    if isinstance(cell, int) and unit is Unit.TIME:
        return time_text(cell)
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell)


def size_text(size: int) -> str:
    """Return a size for people: 3 significant digits and a binary unit."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:.0f} {unit}"


def time_text(time_ms: int) -> str:
    """Return a time in UTC to the millisecond, or the number itself beyond the calendar."""
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    millis = f".{time_ms % 1000:03d}" if time_ms % 1000 else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{millis}Z"
