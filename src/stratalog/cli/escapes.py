"""Escapes: decode those of the command line, and escape control characters for a terminal."""

from __future__ import annotations

import re

from stratalog.errors import UsageError

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_MEANT = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "e": "\x1b"}


def unescaped(text: str, option: str) -> bytes:
    r"""Decode `text` to bytes: UTF-8, with \n, \t, \r, \0, \\ and \xHH. Raises UsageError."""
    found, at = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        found += text[at : match.start()].encode()
        at = match.end()
        escape = match[1]
        if len(escape) == 3:
            found.append(int(escape[1:], 16))
        elif escape in _MEANT:
            found += _MEANT[escape].encode()
        else:
            raise UsageError(f"{option} {text}: unknown escape \\{escape}; known are \\n \\t \\r \\0 \\\\ \\xHH")
    return bytes(found + text[at:].encode())


def visible(text: object) -> str:
    """Return text on one line, with control characters escaped."""
    line = str(text)
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
