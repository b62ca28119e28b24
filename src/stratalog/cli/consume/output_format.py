"""Format records: by a template with verbs, as JSON lines, or for a terminal."""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from stratalog.cli.escapes import unescaped
from stratalog.errors import UsageError

#: Formats a record.
RecordPrinter = Callable[[Any], bytes]

#: A verb and how to write it; the braces may hold one more level of braces.
_VERB: Final = re.compile(r"%(.)(?:\{((?:[^{}]|\{[^{}]*\})*)\})?", re.DOTALL)
_HEADER_VERBS: Final = "kvKV%"
_SIZE: Final = struct.Struct(">i")
#: Verbs of what only batches hold.
_BATCH_VERBS: Final = "exyc"
_NO_TIMESTAMP: Final = -1
#: Joins the parts of an emoji; other characters of this category are escaped.
_JOINER: Final = "\u200d"


def compile_format(text: str, null: bytes = b"") -> RecordPrinter:
    """Compile a template. Raises UsageError.

    %v %s value, %k key, %h headers, %t topic, %p partition, %o offset, %T %d timestamp, %V %S size of the value, %K
    size of the key, %H number of headers, %R size of the value as four bytes, %i running number, %e leader epoch, %x
    producer id, %y producer epoch, %c type of a control record. %v{hex}, %v{base64}, %d{iso}, %d{%H:%M}, %h{%k:%v }:
    the format of each header.
    """
    pieces: list[RecordPrinter] = []
    at = 0
    for match in _VERB.finditer(text):
        pieces.append(_literal(unescaped(text[at : match.start()], "--format")))
        verb, how = match[1], match[2]
        at = match.end()
        if verb == "%":
            pieces.append(_literal(b"%" + (b"{%s}" % how.encode() if how is not None else b"")))
        else:
            pieces.append(_piece(text, verb, how, null))
    pieces.append(_literal(unescaped(text[at:], "--format")))
    return lambda record: b"".join([piece(record) for piece in pieces])


def names_batch(text: str) -> bool:
    """Return whether a template has a verb that needs a `BatchRecord`."""
    return any(match[1] in _BATCH_VERBS for match in _VERB.finditer(text))


def _literal(constant: bytes) -> RecordPrinter:
    return lambda _: constant


def _piece(text: str, verb: str, how: str | None, null: bytes) -> RecordPrinter:
    plain = _PLAIN.get(verb)
    if plain is not None and how is None:
        return plain
    if verb in "kvs":
        encode = _ENCODINGS.get(how or "")
        if encode is None:
            raise UsageError(f"--format {text}: %{verb}{{{how}}}: expected hex or base64")
        name = "key" if verb == "k" else "value"
        return lambda record: null if (value := field_bytes(record, name)) is None else encode(value)
    if verb in "dT":
        return _time_piece(how)
    if verb == "h" and how is not None:
        return _headers_piece(text, how, null)
    if verb == "i" and how is None:
        numbers = itertools.count(1)
        return lambda _: b"%d" % next(numbers)
    if how is not None and verb in _PLAIN:
        raise UsageError(f"--format {text}: %{verb} takes nothing in braces")
    raise UsageError(
        f"--format {text}: unknown verb %{verb}; known are %t %p %o %k %v %h %d %i %K %V %H %R %e %x %y %c %%"
    )


class _Header(NamedTuple):
    """A header, in place of a record in the format of headers."""

    key: bytes
    value: bytes | None


def _headers_piece(text: str, each_as: str, null: bytes) -> RecordPrinter:
    for verb in _VERB.finditer(each_as):
        if verb[1] not in _HEADER_VERBS:
            raise UsageError(f"--format {text}: unknown verb %{verb[1]} of a header; known are %k %v %K %V %%")
    write = compile_format(each_as, null)
    return lambda record: b"".join([write(_Header(key.encode(), value)) for key, value in record.headers])


def _time_piece(how: str | None) -> RecordPrinter:
    if how is None:
        return lambda record: str(record.timestamp).encode()
    pattern = "%Y-%m-%dT%H:%M:%S.%fZ" if how == "iso" else how

    def write(record: Any) -> bytes:
        moment = utc(record.timestamp)
        if moment is None:
            return str(record.timestamp).encode()
        text = moment.strftime(pattern)
        return (f"{text[:-4]}Z" if how == "iso" else text).encode()

    return write


def utc(timestamp_ms: int) -> datetime | None:
    """Return a timestamp as a time, or None if out of range."""
    try:
        return None if timestamp_ms < 0 else datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def field_bytes(record: Any, name: str) -> bytes | None:
    """Return a key or value as bytes; one that a schema decoded, as JSON."""
    value = getattr(record, name)
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json_text(value)).encode("utf-8", "backslashreplace")


def json_text(value: Any) -> str:
    """Return JSON without blanks; text stays readable."""
    try:
        return _dumped(value)
    except ValueError:
        return _dumped(_without_nan(value))


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_json_default)


def _without_nan(value: Any) -> Any:
    """Replace numbers that JSON lacks by texts, as Protobuf's JSON does."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_without_nan, value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _json_default(value: Any) -> Any:
    """Return the JSON form of schema values that JSON lacks."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _size(value: Any, name: str) -> int:
    found = field_bytes(value, name)
    return -1 if found is None else len(found)


def _size_or_none(record: Any) -> int | None:
    return None if record.value is None else _size(record, "value")


def _headers(record: Any) -> bytes:
    return b",".join(key.encode() + b"=" + (value or b"") for key, value in record.headers)


def _sized(record: Any) -> bytes:
    return _SIZE.pack(_size(record, "value"))


_PLAIN: Final[dict[str, RecordPrinter]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "h": _headers,
    "H": lambda record: b"%d" % len(record.headers),
    "K": lambda record: b"%d" % _size(record, "key"),
    "V": lambda record: b"%d" % _size(record, "value"),
    "S": lambda record: b"%d" % _size(record, "value"),
    "R": _sized,
    "e": lambda record: b"%d" % record.leader_epoch,
    "x": lambda record: b"%d" % record.producer_id,
    "y": lambda record: b"%d" % record.producer_epoch,
    "c": lambda record: record.control.encode(),
}
_ENCODINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "": bytes,
    "hex": lambda value: value.hex().encode(),
    "base64": base64.b64encode,
}


def print_as_json(record: Any, *, with_value: bool = True) -> bytes:
    """Return a line of JSON. Text is in `key` and `value`; bytes that are not UTF-8 in `keyBase64`, `valueBase64`.

    Without the value, `valueSize` has its size in bytes, or null. A `BatchRecord` also has `leaderEpoch`, `producerId`,
    `producerEpoch`, each null if unknown, and `control`, null for records that are none.
    """
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp == _NO_TIMESTAMP else record.timestamp,
        **_json_field("key", record.key),
        **(_json_field("value", record.value) if with_value else {"valueSize": _size_or_none(record)}),
        "headers": [{"key": key, **_json_field("value", value)} for key, value in record.headers],
        **(_of_batch(record) if hasattr(record, "leader_epoch") else {}),
    }
    return f"{json_text(fields)}\n".encode("utf-8", "backslashreplace")  # as JSON writes half a surrogate pair


def _of_batch(record: Any) -> dict[str, Any]:
    numbers = {
        "leaderEpoch": record.leader_epoch,
        "producerId": record.producer_id,
        "producerEpoch": record.producer_epoch,
    }
    return {
        **{name: None if number < 0 else number for name, number in numbers.items()},
        "control": record.control or None,
    }


def _json_field(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, bytes):
        return {name: value}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(value).decode()}


class PersonPrinter:
    """Formats a line for a terminal: partition, offset and time, dim; the key, coloured; the value; headers, dim.

    Control characters are escaped, so that no record changes the terminal.
    """

    def __init__(self, *, with_topic: bool, width: int, in_colour: bool) -> None:
        self._with_topic = with_topic
        self._time_format = "%Y-%m-%d %H:%M:%S" if width >= 100 else "%H:%M:%S"
        self._in_colour = in_colour

    def __call__(self, record: Any) -> bytes:
        where = f"{record.topic}/" if self._with_topic else ""
        moment = utc(record.timestamp)
        time = "" if moment is None else f" {moment.astimezone().strftime(self._time_format)}"
        parts = [self._styled("2", f"{where}{record.partition}:{record.offset}{time}")]
        if getattr(record, "control", ""):
            return f"{parts[0]}  {self._styled('2;3', record.control)}\n".encode()
        if record.key is not None:
            parts.append(self._styled("36", shown(field_bytes(record, "key"))))
        value = field_bytes(record, "value")
        parts.append(self._styled("2;3", "null") if value is None else shown(value))
        if record.headers:
            text = " ".join(f"{shown(key.encode())}={shown(value)}" for key, value in record.headers)
            parts.append(self._styled("2", f"[{text}]"))
        return ("  ".join(parts) + "\n").encode("utf-8", "backslashreplace")

    def _styled(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._in_colour else text


def shown(value: bytes | None) -> str:
    r"""Return bytes as text that is safe on a terminal: \xHH for invalid UTF-8, escapes for control characters."""
    if value is None:
        return "null"
    text = value.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in _SHOWN_AS_IT_IS else _escaped(letter) for letter in text)


_SHOWN_AS_IT_IS: Final = frozenset({"\n", "\t", _JOINER})


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
