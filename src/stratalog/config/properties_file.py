"""Java's properties files, such as `server.properties`: `java.util.Properties.load` in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stratalog.errors import UsageError

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: A key, which ends at the first separator that is not escaped, and the value behind the separator.
_LINE = re.compile(r"((?:\\.|[^\\=:\s])*)(\s*[=:]\s*|\s+)?(.*)")


def parse_properties(text: str, source: str) -> dict[str, str]:
    """Return the keys and values of a file's text: `=`, `:` or space between them, continued lines, escapes.

    Raises UsageError naming `source` and the line that is no `key=value` (Java would take it for a key without a
    value).
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        if match is None or not match[1] or match[2] is None:
            raise UsageError(f"{source}:{number}: expected key=value, found '{line}'")
        properties[_unescaped(match[1])] = _unescaped(match[3]).strip()
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that continue them, without blank ones and comments; the number of the last of each."""
    begun = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip() if not _continues(raw) else raw.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        if _continues(line):
            begun += line[:-1]
            continue
        yield number, (begun + line).strip()
        begun = ""
    if begun.strip():
        yield number, begun.strip()


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _CONTROL.get(escaped, escaped)

    return _ESCAPE.sub(one, text)
