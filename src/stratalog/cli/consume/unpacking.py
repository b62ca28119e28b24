"""`--unpack`: numbers and text out of the bytes of keys and values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from stratalog.errors import StratalogError, UsageError

_NUMBERS: Final = frozenset("bBhHiIqQfd")
_EXPECTED: Final = "expected b B h H i I q Q f d (numbers), c (a character), s (the rest, as text), $ (the end), < or >"


class LayoutError(StratalogError):
    """Bytes that do not have their layout. The command exits with code 1."""

    exit_code = 1


class ByteLayout:
    """What consecutive bytes mean: a number for each letter, big-endian until `<`."""

    def __init__(self, text: str) -> None:
        """Compile a layout. Raises UsageError."""
        self._text = text
        self._numbers: list[struct.Struct] = []
        self._takes_rest = self._ends = False
        order = ">"
        for letter in text.replace(" ", ""):
            if self._takes_rest or self._ends:
                raise UsageError(f"--unpack {text}: {letter} stands behind the end")
            if letter in "<>":
                order = letter
            elif letter in _NUMBERS or letter == "c":
                self._numbers.append(struct.Struct(order + letter))
            elif letter in "s$":
                self._takes_rest, self._ends = letter == "s", letter == "$"
            else:
                raise UsageError(f"--unpack {text}: unknown letter {letter}; {_EXPECTED}")
        if not self._numbers and not self._takes_rest:
            raise UsageError(f"--unpack {text}: nothing to read; {_EXPECTED}")

    def read(self, data: bytes) -> Any:
        """Return the value of `data`; a list if the layout has several. Raises LayoutError."""
        found: list[Any] = []
        at = 0
        for number in self._numbers:
            end = at + number.size
            if end > len(data):
                raise LayoutError(f"{len(data)} bytes do not have the layout {self._text}: {end} are needed")
            (value,) = number.unpack_from(data, at)
            found.append(_text(value) if isinstance(value, bytes) else value)
            at = end
        if self._takes_rest:
            found.append(_text(data[at:]))
        elif self._ends and at < len(data):
            raise LayoutError(f"{len(data)} bytes do not have the layout {self._text}: it ends after {at}")
        return found[0] if len(found) == 1 else found


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def unpacker(options: Sequence[str]) -> Callable[[Any], Any]:
    """Return a function that unpacks key and value of a record, as options say: [key=|value=]LAYOUT.

    The function raises LayoutError, which names the record. Raises UsageError.
    """
    layouts: dict[str, ByteLayout] = {}
    for text in options:
        field, separator, layout = text.rpartition("=")
        if separator and field not in ("key", "value"):
            raise UsageError(f"--unpack {text}: expected LAYOUT, key=LAYOUT or value=LAYOUT")
        for name in (field,) if separator else ("key", "value"):
            if name in layouts:
                raise UsageError(f"--unpack {text}: the {name} has a layout already")
            layouts[name] = ByteLayout(layout)

    def unpack(record: Any) -> Any:
        found = {}
        for name, layout in layouts.items():
            data = getattr(record, name)
            if data is None:
                continue
            try:
                found[name] = layout.read(data)
            except LayoutError as error:
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                raise LayoutError(f"{where}: {name}: {error}") from None
        return replace(record, **found)

    return unpack
