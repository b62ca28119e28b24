"""Findings of a check and steps of a repair: a table and lines for people, or JSON, one object a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from stratalog.cli.out.text import counted, on_terminal, print_json
from stratalog.util import TableColumn, print_table, terminal_width

F = TypeVar("F")

_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "dim"}
#: Minimum terminal width for all columns side by side.
_WIDE: Final = 150
_NARROW: Final = (TableColumn("SEVERITY", folds=False), TableColumn("WHERE", ratio=2), TableColumn("WHAT", ratio=3))


@dataclass(frozen=True, slots=True)
class FindingText:
    """A finding for people: `cells` of the wide table after its severity; the rest is for a narrow terminal."""

    severity: str
    kind: str
    found: str
    cells: tuple[str, ...]
    places: tuple[str, ...]
    #: further text by label
    details: Mapping[str, str]


class FindingsPrinter:
    """Prints text or JSON. `columns` are those of the wide table after the severity."""

    def __init__(self, columns: Sequence[TableColumn], *, as_json: bool) -> None:
        self._columns = (TableColumn("SEVERITY", folds=False), *columns)
        self._as_json = as_json

    def findings(
        self, findings: Sequence[F], text_of: Callable[[F], FindingText], object_of: Callable[[F], dict[str, Any]]
    ) -> None:
        """Print findings as `text_of` or as `object_of` describes them."""
        if self._as_json:
            for one in findings:
                print_json({"type": "finding", **object_of(one)})
        elif findings:
            from rich.text import Text  # --help does without

            is_wide = not on_terminal() or terminal_width() >= _WIDE
            rows: list[tuple[object, ...]] = []
            for each in map(text_of, findings):
                severity = Text(each.severity, style=_STYLES[each.severity])
                rows.append((severity, *(each.cells if is_wide else ("\n".join(each.places), _what(each)))))
            print_table(self._columns if is_wide else _NARROW, rows, is_terminal=on_terminal())

    def line(
        self, text: str, type_: str | None = None, values: Mapping[str, object] | None = None, *, is_bad: bool = False
    ) -> None:
        """Print `text`, or in JSON an object of `type_` with `values`; nothing without a type."""
        if not self._as_json:
            _print_line(text, is_bad=is_bad)
        elif type_ is not None:
            print_json({"type": type_, **(values or {})})

    def document(self, type_: str, values: Mapping[str, object]) -> None:
        """Print an object in JSON, and nothing as text."""
        if self._as_json:
            print_json({"type": type_, **values})

    def done(self, place: str, text: str, error: str | None, values: Mapping[str, object]) -> None:
        """Print the result of one repair."""
        said = f"repaired {place}: {text}" if error is None else f"not repaired {place}: {error}"
        self.line(said, "repaired", values, is_bad=error is not None)


def severity_counts(severities: Sequence[str], repairable: int, command: str, *, with_zeros: bool = False) -> str:
    """Return the number of findings by severity, and how many of them `command` repairs."""
    found = Counter(severities)
    parts = [counted(found[each], each) for each in _STYLES if found[each] or with_zeros]
    return ", ".join(parts) + (f"; {repairable} of them can be repaired ({command})" if repairable else "")


def _what(each: FindingText) -> object:
    from rich.text import Text  # as above

    what = Text.assemble((each.kind, "bold"), f": {each.found}")
    for label, text in each.details.items():
        what.append_text(Text.assemble("\n", (f"{label}: ", "green" if label == "repair" else "dim"), text))
    return what


def _print_line(text: str, *, is_bad: bool) -> None:
    """Print a line, wrapped between words where a terminal is narrower."""
    if not on_terminal():
        print(text)
        return
    from rich.console import Console  # as above

    Console(markup=False, highlight=False).print(text, style="bold red" if is_bad else None)
