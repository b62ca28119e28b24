"""Parse records from a stream of bytes: lines, JSON lines, one record of all bytes, or size-prefixed records.

A reader is fed chunks as they arrive and returns the complete records.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from stratalog.cli.escapes import unescaped
from stratalog.cli.schema_registry import SchemaRegistry
from stratalog.errors import UsageError

Headers = tuple[tuple[str, bytes], ...]

_SIZE: Final = struct.Struct(">i")
#: The largest timestamp of a record.
_NUMBER_MAX: Final = (1 << 63) - 1
_VERB: Final = re.compile(r"%(.)(?:\{([^}]*)\})?", re.DOTALL)
_FIELDS: Final = {
    "k": "key",
    "v": "value",
    "h": "headers",
    "p": "partition",
    "T": "timestamp",
    "s": "value",
    "d": "timestamp",  # spellings of other tools
}


class InputFormat(Enum):
    """The format of the input."""

    LINES = "lines"
    JSON = "json"
    RAW = "raw"
    SIZED = "sized"


class OutgoingRecord(NamedTuple):
    """A record to send. The producer chooses a partition or timestamp of None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


#: Parses the bytes between two delimiters.
RecordParser = Callable[[bytes], OutgoingRecord]


class RecordReader(Protocol):
    """Divides a stream into records, each parsed on demand, so that an error is attributed to its record."""

    def feed(self, chunk: bytes) -> Iterable[OutgoingRecord]:
        """Return the records that this chunk completes."""

    def finish(self) -> Iterable[OutgoingRecord]:
        """Return the remaining records at the end of the stream."""


class DelimitedReader:
    """Records that end with a delimiter; the last one may lack it."""

    def __init__(self, delimiter: bytes, parse: RecordParser) -> None:
        self._delimiter = delimiter
        self._parse = parse
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterable[OutgoingRecord]:
        *whole, self._rest = (self._rest + chunk).split(self._delimiter)
        return map(self._parse, whole)

    def finish(self) -> Iterable[OutgoingRecord]:
        rest, self._rest = self._rest, b""
        return map(self._parse, [rest] if rest else [])


class ChunkReader:
    """One record of each chunk."""

    def __init__(self, parse: RecordParser) -> None:
        self._parse = parse

    def feed(self, chunk: bytes) -> Iterable[OutgoingRecord]:
        return map(self._parse, [chunk])

    def finish(self) -> Iterable[OutgoingRecord]:
        return []


class WholeReader:
    """One record of all bytes of a stream."""

    def __init__(self, parse: RecordParser) -> None:
        self._parse = parse
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterable[OutgoingRecord]:
        self._chunks.append(chunk)
        return []

    def finish(self) -> Iterable[OutgoingRecord]:
        return map(self._parse, [b"".join(self._chunks)])


class SizedReader:
    """Records prefixed by their size in four bytes, big-endian; -1 is a record without a value."""

    def __init__(self, parse: RecordParser) -> None:
        self._parse = parse
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterable[OutgoingRecord]:
        data, at = self._rest + chunk, 0
        found: list[bytes | None] = []
        while len(data) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, at)
            if size < -1:
                raise UsageError(f"--input sized: a record of {size} bytes; expected sizes of four bytes, big-endian")
            end = at + _SIZE.size + max(size, 0)
            if end > len(data):
                break
            found.append(data[at + _SIZE.size : end] if size >= 0 else None)
            at = end
        self._rest = data[at:]
        return (self._parse(each) if each is not None else self._parse(b"")._replace(value=None) for each in found)

    def finish(self) -> Iterable[OutgoingRecord]:
        if self._rest:
            raise UsageError(f"--input sized: the input ends within a record ({len(self._rest)} bytes are left)")
        return []


class FieldParser:
    """Parses lines: the whole line, a key before a separator, or fields by a format."""

    def __init__(
        self,
        like: OutgoingRecord,
        *,
        key_separator: bytes = b"",
        template: str | None = None,
        empty_is_null: bool = False,
    ) -> None:
        """`like` has the common fields of all records."""
        if key_separator and template is not None:
            raise UsageError("give either --key-separator or --format")
        self._like = like
        self._separator = key_separator
        self._template = None if template is None else LineFormat(template)
        self._empty_is_null = empty_is_null

    def __call__(self, line: bytes) -> OutgoingRecord:
        record = self._like
        if self._template is not None:
            record = self._by_template(line)
        elif self._separator:
            key, found, value = line.partition(self._separator)
            record = record._replace(key=key, value=value) if found else record._replace(value=line)
        else:
            record = OutgoingRecord(line, *record[1:])
        if self._empty_is_null:
            record = record._replace(key=record.key or None, value=record.value or None)
        return record

    def _by_template(self, line: bytes) -> OutgoingRecord:
        assert self._template is not None
        fields = self._template.fields(line)
        if "partition" in fields:
            fields["partition"] = _whole_number(fields["partition"], "partition")
        if "timestamp" in fields:
            fields["timestamp_ms"] = _whole_number(fields.pop("timestamp"), "timestamp")
        if "headers" in fields:
            text = fields["headers"].decode(errors="replace")
            fields["headers"] = self._like.headers + parse_headers(filter(None, text.split(",")), "--format %h")
        return self._like._replace(**fields)


class LineFormat:
    """The format of a line: text, and verbs for fields. %k{hex}, %v{base64}: the field is encoded."""

    def __init__(self, template: str) -> None:
        """Compile a format. Raises UsageError."""
        self._decoders: dict[str, Callable[[bytes], bytes]] = {}
        pattern, at, used = b"", 0, set[str]()
        for match in _VERB.finditer(template):
            pattern += re.escape(unescaped(template[at : match.start()], "--format"))
            at = match.end()
            field, encoding = _FIELDS.get(match[1]), match[2]
            if match[1] == "%":
                pattern += re.escape(match[0][1:].encode())
                continue
            if field is None:
                raise UsageError(f"--format {template}: unknown verb %{match[1]}; known are %k %v %h %p %T")
            if field in used:
                raise UsageError(f"--format {template}: the {field} appears twice")
            if encoding is not None:
                if field not in ("key", "value") or encoding not in _DECODERS:
                    raise UsageError(f"--format {template}: {match[0]}: expected %k or %v with {{hex}} or {{base64}}")
                self._decoders[field] = _DECODERS[encoding]
            used.add(field)
            pattern += b"(?P<%s>.*?)" % field.encode()
        if "value" not in used:
            raise UsageError(f"--format {template}: no value in it; write it as %v")
        self._pattern = re.compile(pattern + re.escape(unescaped(template[at:], "--format")), re.DOTALL)

    def fields(self, line: bytes) -> dict[str, Any]:
        """Return the bytes of each field. Raises UsageError."""
        match = self._pattern.fullmatch(line)
        if match is None:
            raise UsageError(f"{shortened(line)} does not have the form of --format")
        fields: dict[str, Any] = match.groupdict()
        for field, decode in self._decoders.items():
            try:
                fields[field] = decode(fields[field])
            except ValueError:  # binascii.Error among them
                raise UsageError(f"{field} {shortened(fields[field])} is not encoded as --format says") from None
        return fields


_DECODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "hex": binascii.unhexlify,
    "base64": functools.partial(base64.b64decode, validate=True),
}


def parse_headers(texts: Iterable[str], option: str) -> Headers:
    """Return NAME=VALUE texts as headers. Raises UsageError."""
    found = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise UsageError(f"{option} {text}: expected NAME=VALUE")
        if not _is_utf8(name):
            raise UsageError(f"{option} {text!a}: the name is not UTF-8")
        found.append((name, value.encode("utf-8", "surrogateescape")))
    return tuple(found)


class JsonParser:
    """Parses JSON objects, as `consume --json` prints them.

    Unknown members are ignored. Text is sent as UTF-8, other values as JSON. `keyBase64` and `valueBase64` have
    bytes.
    """

    def __init__(self, like: OutgoingRecord) -> None:
        self._like = like

    def __call__(self, line: bytes) -> OutgoingRecord:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{shortened(line)} is not JSON: {error}") from None
        if not isinstance(entry, dict) or ("value" not in entry and "valueBase64" not in entry):
            raise UsageError(f'{shortened(line)}: expected an object with "value", such as {{"key":"a","value":"b"}}')
        like = self._like
        timestamp = entry.get("timestamp", like.timestamp_ms)
        partition = like.partition if like.partition is not None else entry.get("partition")
        return OutgoingRecord(
            _field_bytes(entry, "value", None),
            _field_bytes(entry, "key", like.key),
            like.headers + _json_headers(entry.get("headers")),
            None if partition is None else _whole_number(partition, "partition"),
            None if timestamp is None else _whole_number(timestamp, "timestamp"),
        )


class SchemaParser:
    """Encodes keys and values with schemas. Text that is not JSON is a string."""

    def __init__(
        self, parse: RecordParser, registry: SchemaRegistry, key_schema: int | None, value_schema: int | None
    ) -> None:
        self._parse = parse
        self._registry = registry
        self._key_schema = key_schema
        self._value_schema = value_schema

    def __call__(self, line: bytes) -> OutgoingRecord:
        record = self._parse(line)
        return record._replace(
            key=self._encoded(record.key, self._key_schema), value=self._encoded(record.value, self._value_schema)
        )

    def _encoded(self, data: bytes | None, schema_id: int | None) -> bytes | None:
        if data is None or schema_id is None:
            return data
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = data.decode(errors="replace")
        return self._registry.encoded(value, schema_id)


def shortened(line: bytes, length: int = 60) -> str:
    """Return the beginning of a line, for a message."""
    text = ascii(line[:length].decode(errors="replace")) if not line.isascii() else repr(line[:length].decode())
    return f"{text}.." if len(line) > length else text


def _field_bytes(entry: Mapping[str, Any], name: str, missing: bytes | None) -> bytes | None:
    encoded = entry.get(f"{name}Base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):  # binascii.Error among them
            raise UsageError(f"{name}Base64: expected text in Base64") from None
    if name not in entry:
        return missing
    value = entry[name]
    return None if value is None else json_bytes(value)


def json_bytes(value: Any) -> bytes:
    """Return text as UTF-8, and any other value as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _json_headers(entry: Any) -> Headers:
    """Parse headers: an object, or a list of objects with key and value, in which a name may repeat."""
    if entry is None:
        return ()
    pairs: Sequence[Any] = (
        [{"key": name, "value": value} for name, value in entry.items()] if isinstance(entry, dict) else entry
    )
    if not isinstance(pairs, list) or not all(isinstance(each, dict) and "key" in each for each in pairs):
        raise UsageError('headers: expected {"name":"value"}, or [{"key":"name","value":"value"}]')
    headers = tuple((str(each["key"]), _field_bytes(each, "value", None) or b"") for each in pairs)
    for name, _ in headers:
        if not _is_utf8(name):
            raise UsageError(f"header {name!a}: the name is not UTF-8")
    return headers


def _is_utf8(text: str) -> bool:
    """Return whether text can be encoded as UTF-8: lone surrogates cannot, as from undecodable arguments."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole_number(value: Any, what: str) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if not 0 <= number <= _NUMBER_MAX or isinstance(value, float | bool):
        raise UsageError(f"{what} {value!r}: expected a number from 0 on")
    return number
