"""Keys, values and headers as printable text of bounded size."""

from __future__ import annotations

import json
import unicodedata
from typing import Any, Final

from stratalog.errors import StratalogError
from stratalog.records import Record
from stratalog.web.declarations import SchemaReader

FORMATS: Final = ("auto", "text", "json", "schema", "hex", "int", "none")
#: Bytes shown of one key or value; the rest can be downloaded.
SHOWN_BYTES: Final = 4096
_HEADERS_MAX: Final = 100
_HEX_ROW: Final = 16
_INT_SIZES: Final = (1, 2, 4, 8)


def shown(
    data: bytes | None, form: str, limit: int = SHOWN_BYTES, schemas: SchemaReader | None = None
) -> dict[str, Any]:
    """Return the text of bytes in a format, the format, the number of bytes, and whether it is cut."""
    if data is None:
        return {"text": None, "format": "null", "bytes": 0, "cut": False}
    if form == "schema":
        return _by_schema(data, limit, schemas)
    piece = data[:limit]
    cut = len(piece) < len(data)
    chosen = _guess(data) if form == "auto" else form
    text, chosen_format = _text(piece, data, chosen, cut=cut)
    return {"text": text, "format": chosen_format, "bytes": len(data), "cut": cut}


def _by_schema(data: bytes, limit: int, schemas: SchemaReader | None) -> dict[str, Any]:
    if schemas is None:
        return {**shown(data, "auto", limit), "format": "no stratalog.web.schema.registry is set"}
    try:
        value = schemas(data)
    except StratalogError as error:
        return {**shown(data, "hex", limit), "format": visible(str(error))}
    if isinstance(value, bytes):
        return {**shown(data, "auto", limit), "format": "no schema"}
    text = json.dumps(value, ensure_ascii=False, indent=1, default=str)
    return {
        "text": visible(text[:limit], lines=True),
        "format": "by its schema",
        "bytes": len(data),
        "cut": len(text) > limit,
    }


def _guess(data: bytes) -> str:
    """Return the best format: JSON, text, or bytes."""
    head = data[:SHOWN_BYTES]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if len(data) <= SHOWN_BYTES or error.start < len(head) - 4:
            return "hex"
        text = head[: error.start].decode()
    if any(unicodedata.category(each) == "Cc" and each not in "\t\n\r" for each in text):
        return "hex"
    return "json" if text[:1] in ("{", "[") and len(data) <= SHOWN_BYTES else "text"


def _text(piece: bytes, data: bytes, form: str, *, cut: bool) -> tuple[str, str]:
    if form == "none":
        return "", "none"
    if form == "int" and len(data) in _INT_SIZES:
        return str(int.from_bytes(data, "big", signed=True)), "int"
    if form == "json" and not cut:
        try:
            return visible(json.dumps(json.loads(data), ensure_ascii=False, indent=1), lines=True), "json"
        except (ValueError, RecursionError):
            return visible(piece.decode("utf-8", "backslashreplace"), lines=True), "not JSON"
    if form in ("hex", "int"):
        rows = (piece[at : at + _HEX_ROW].hex(" ") for at in range(0, len(piece), _HEX_ROW))
        return "\n".join(rows), "hex"
    return visible(piece.decode("utf-8", "backslashreplace"), lines=True), "text"


def visible(text: str, *, lines: bool = False) -> str:
    """Return text without characters that could change how text around it is displayed.

    Escapes control characters and those that change the text direction.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if _is_plain(each, lines=lines) else _spelled(each) for each in text)


def _is_plain(each: str, *, lines: bool) -> bool:
    if each in "\n\t":
        return lines
    return unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _spelled(each: str) -> str:
    return each.encode("unicode_escape").decode()


def record_json(
    record: Record, key_format: str, value_format: str, schemas: SchemaReader | None = None
) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestampMs": record.timestamp_ms,
        "key": shown(record.key, key_format, 512, schemas),
        "value": shown(record.value, value_format, SHOWN_BYTES, schemas),
        "headers": [
            {"name": visible(name), "value": shown(value, "auto", 512)} for name, value in record.headers[:_HEADERS_MAX]
        ],
        "headerCount": len(record.headers),
    }
