"""Java's properties files, such as `server.properties`: `java.util.Properties.load` in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stratalog.errors import UsageError

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
#: What Java takes for a blank: no other of Unicode's, which may be part of a value.
_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: A key, which ends at the first separator that is not escaped, and the value behind the separator.
_LINE = re.compile(r"((?:\\.|[^\\=: \t\f])*)([ \t\f]*[=:][ \t\f]*|[ \t\f]+)?(.*)", re.DOTALL)


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Return the keys and values of a file's text: `=`, `:` or space between them, continued lines, escapes.

    Raises UsageError naming `source` and the line that is no `key=value` (Java would take it for a key without a
    value), or has an escape that is none. The line is not shown: it may be part of a key or a password.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text.removeprefix("\ufeff")):
        match = _LINE.fullmatch(line)
        if match is None or not match[1] or match[2] is None:
            raise UsageError(f"{source}:{number}: expected key=value")
        try:
            properties[_unescaped(match[1])] = _unescaped(match[3]).strip(_BLANKS)
        except ValueError:
            raise UsageError(f"{source}:{number}: expected \\uXXXX with four hexadecimal digits") from None
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that continue them, without blank ones and comments; the number of the last of each."""
    begun = ""
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        if _continues(line):
            begun += line[:-1]
            continue
        yield number, _without_end(begun + line)
        begun = ""
    if begun.strip(_BLANKS):
        yield number, _without_end(begun)


def _without_end(line: str) -> str:
    """Return a line without the blanks at its end, but for one that is escaped: it continues nothing."""
    found = line.rstrip(_BLANKS)
    return line[: len(found) + 1] if _continues(found) else found


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    """Return the text that is meant. ValueError for an escape, or for half of a surrogate pair."""

    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise ValueError("expected four hexadecimal digits")
        return _CONTROL.get(escaped, escaped)

    # Java writes a character beyond U+FFFF as a pair.
    return _ESCAPE.sub(one, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
