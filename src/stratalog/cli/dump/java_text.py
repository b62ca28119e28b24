"""Bytes as text, as Java reads them."""

from __future__ import annotations

import codecs
from typing import Final

_REPLACE: Final = "stratalog.java-replace"


def plain_text(data: bytes | None) -> str | None:
    """Bytes as Java's `new String(bytes, UTF_8)`."""
    return None if data is None else data.decode(errors=_REPLACE)


def _replace_as_java_does(error: UnicodeError) -> tuple[str, int]:
    """U+FFFD for each malformed piece; an encoded surrogate (ED A0..BF xx) is one piece in Java, several in Python."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    piece = error.object[error.start : error.start + 3]
    if len(piece) >= 2 and piece[0] == 0xED and 0xA0 <= piece[1] <= 0xBF:
        is_whole = len(piece) == 3 and 0x80 <= piece[2] <= 0xBF
        return "\ufffd", error.start + (3 if is_whole else 2)
    return "\ufffd", error.end


codecs.register_error(_REPLACE, _replace_as_java_does)
