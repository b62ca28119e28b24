"""Lines of JAAS, as Kafka's properties have them: a login module, a flag, and options, ended by a semicolon.

What Kafka refuses is refused: a line that was cut, options without values, more than one module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_MODULE: Final = re.compile(r"\s*([\w.$-]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION: Final = re.compile(
    r"""\s*([\w.\-@$]+)\s*=\s*(?:"((?:[^"\\\r\n]|\\.)*)"|'((?:[^'\\\r\n]|\\.)*)'|([^\s;"']+))(?=[\s;])"""
)
_END: Final = re.compile(r"\s*;\s*")
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
#: As in Java's StreamTokenizer.
_CONTROL: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def jaas_module(text: str) -> str | None:
    """Return the class of the login module, without its package; None for what is no line of JAAS."""
    parsed = _parse(text)
    return None if parsed is None else parsed[0]


def jaas_options(text: str) -> Mapping[str, str] | None:
    """Return the options of a line of JAAS, unquoted; None for what is none."""
    parsed = _parse(text)
    return None if parsed is None else parsed[1]


def _parse(text: str) -> tuple[str, Mapping[str, str]] | None:
    """Return the module and its options, or None unless the text is one whole entry."""
    begun = _MODULE.match(text)
    if begun is None:
        return None
    options, position = {}, begun.end()
    while (found := _OPTION.match(text, position)) is not None:
        quoted = found[2] if found[2] is not None else found[3]
        options[found[1]] = found[4] if quoted is None else _ESCAPE.sub(_unescaped, quoted)
        position = found.end()
    if _END.fullmatch(text, position) is None:
        return None
    return begun[1].rpartition(".")[2], options


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _CONTROL.get(escaped, escaped)
