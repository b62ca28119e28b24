"""Decode a Kafka message by its schema into the JSON that Kafka's generated converters give.

`record_schemas.json` holds, compacted, the schemas of the records of `__consumer_offsets`, `__transaction_state`,
`__share_group_state` and `__cluster_metadata`, of KRaft's control records and of the consumer protocol, as Apache Kafka
4.4.0 declares them. A field is left out of the JSON when the version lacks it, and a tagged one also when it has its
default value. Versions: "3", "0-4", "4+" or "none".
"""

from __future__ import annotations

import base64
import json
import math
import struct
import uuid
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any, Final

from stratalog.errors import CorruptRecordError
from stratalog.util import VARINT_BYTES_MAX, decode_unsigned, uuid_to_base64

JsonValue = None | bool | int | float | str | list[Any] | dict[str, Any]
Schema = dict[str, Any]

_NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "uint32": struct.Struct(">I"),
    "int64": struct.Struct(">q"),
}
_SMALLEST_DOUBLE: Final = 5e-324
_ZERO_UUID: Final = uuid_to_base64(uuid.UUID(int=0))


class MalformedMessageError(Exception):
    """Bytes that do not follow their schema."""


@cache
def schemas() -> dict[str, Any]:
    """Return topic kind ("group", "transaction", "share") -> key type -> {"key", "value"}.

    Also "metadata" -> API key -> {"type", "value"}; "protocol" and "control" -> name -> schema.
    """
    text = resources.files("stratalog.cli.dump").joinpath("record_schemas.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def decode_message(schema: Schema, version: int, data: bytes, *, is_whole: bool = True) -> dict[str, JsonValue]:
    """Return the JSON of a message that fills `data`, or begins it if not `is_whole`. Raises MalformedMessageError."""
    if not _contains(schema["validVersions"], version):
        raise MalformedMessageError(f"Can't read version {version} of {schema['name']}")
    reader = _Reader(data, version, flexible=_contains(schema["flexibleVersions"], version))
    try:
        decoded = reader.fields(schema["fields"])
    except (struct.error, IndexError, ValueError, CorruptRecordError) as error:
        raise MalformedMessageError(f"{schema['name']} version {version}: {error}") from None
    if is_whole and reader.position != len(data):
        raise MalformedMessageError(
            f"{schema['name']} version {version}: {len(data) - reader.position} bytes are left over"
        )
    return decoded


def to_json(value: JsonValue) -> str:
    """Compact JSON with the escapes that Jackson uses: only what must be, \\u00XX in capitals."""
    if isinstance(value, str):
        return '"' + value.translate(_ESCAPES) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{to_json(key)}:{to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    if isinstance(value, float):
        return java_double(value)
    return json.dumps(value)


def java_double(value: float) -> str:
    """Format a number as Java's `Double.toString` does, in quotes where JSON has no number for it (as Jackson does)."""
    if value != value or value in (math.inf, -math.inf):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    if abs(value) == _SMALLEST_DOUBLE:  # Java writes two digits at least, and this one's second is no zero
        return repr(value).replace("5e-324", "4.9E-324")
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent  # the value is 0.<digits> * 10^point
    head = "-" if sign else ""
    if text == "0":
        return f"{head}0.0"
    if -3 < point <= 7:
        padded = "0" * (1 - point) + text if point < 1 else text.ljust(point, "0")
        whole = max(point, 1)
        return f"{head}{padded[:whole]}.{padded[whole:] or '0'}"
    return f"{head}{text[0]}.{text[1:] or '0'}E{point - 1}"


_ESCAPES: Final = {
    **{code: f"\\u{code:04X}" for code in range(0x20)},
    **str.maketrans({"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}),
}


def _contains(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    first, _, last = versions.partition("-")
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    return int(first) <= version <= int(last or first)


class _Reader:
    """Reads fields one after the other. Damage raises struct.error, IndexError or ValueError."""

    def __init__(self, data: bytes, version: int, *, flexible: bool) -> None:
        self.data = data
        self.version = version
        self.flexible = flexible
        self.position = 0

    def fields(self, fields: list[Schema]) -> dict[str, JsonValue]:
        present = [field for field in fields if _contains(field["versions"], self.version)]
        tagged = {
            field["tag"]: field
            for field in present
            if self.flexible and _contains(field.get("tagged", "none"), self.version)
        }
        values: dict[str, JsonValue] = {}
        for field in present:
            if field.get("tag") not in tagged or "tag" not in field:
                values[field["name"]] = self.value(field, field["type"])
        if self.flexible:
            values.update(self._tagged(tagged))
        return {field["name"]: values[field["name"]] for field in present if field["name"] in values}

    def _tagged(self, fields: dict[int, Schema]) -> dict[str, JsonValue]:
        values: dict[str, JsonValue] = {}
        for _ in range(self.unsigned()):
            tag, size = self.unsigned(), self.unsigned()
            end = self.position + size
            if end > len(self.data):
                raise ValueError(f"tagged field {tag} of {size} bytes passes the end")
            field = fields.get(tag)
            if field is not None:
                value = self.value(field, field["type"])
                if value != _default(field, self.version):
                    values[field["name"]] = value
            self.position = end
        return values

    def value(self, field: Schema, kind: str) -> JsonValue:
        if kind.startswith("[]"):
            count = self._length(compact_bias=1, fixed=_NUMBERS["int32"])
            return None if count < 0 else [self.value(field, kind[2:]) for _ in range(self._checked(count))]
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == "float64":
            (real,) = struct.unpack(">d", self.raw(8))
            return float(real)
        if kind == "bool":
            return self.number(_NUMBERS["int8"]) != 0
        if kind == "string":
            size = self._length(compact_bias=1, fixed=_NUMBERS["int16"])
            return None if size < 0 else self.raw(size).decode(errors="replace")
        if kind == "bytes":
            size = self._length(compact_bias=1, fixed=_NUMBERS["int32"])
            return None if size < 0 else base64.b64encode(self.raw(size)).decode()
        if kind == "uuid":
            return base64.urlsafe_b64encode(self.raw(16)).rstrip(b"=").decode()
        if field["type"] == kind and self._is_null_struct(field):
            return None
        return self.fields(field["fields"])

    def _is_null_struct(self, field: Schema) -> bool:
        """Return a struct that may be null has a mark before it: a byte below 0, in a tagged field a varint of 0."""
        if not _contains(field.get("nullable", "none"), self.version):
            return False
        if _contains(field.get("tagged", "none"), self.version):
            return self.unsigned() == 0
        return self.number(_NUMBERS["int8"]) < 0

    def number(self, form: struct.Struct) -> int:
        (value,) = form.unpack_from(self.data, self.position)
        self.position += form.size
        return int(value)

    def unsigned(self) -> int:
        value, self.position = decode_unsigned(self.data, self.position, VARINT_BYTES_MAX)
        return value

    def raw(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise ValueError(f"{size} bytes at {self.position} pass the end at {len(self.data)}")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def _length(self, *, compact_bias: int, fixed: struct.Struct) -> int:
        return self.unsigned() - compact_bias if self.flexible else self.number(fixed)

    def _checked(self, count: int) -> int:
        if count > len(self.data):
            raise ValueError(f"an array of {count} elements in {len(self.data)} bytes")
        return count


def _default(field: Schema, version: int) -> JsonValue:
    """Return a field's default value as JSON; one that is not declared is the zero of its type."""
    kind, declared = field["type"], field.get("default")
    if declared == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind in _NUMBERS:
        return int(declared or 0)
    if kind == "float64":
        return float(declared or 0)
    if kind == "bool":
        return str(declared).lower() == "true"
    if kind in ("string", "bytes"):
        return str(declared or "")
    if kind == "uuid":
        return _ZERO_UUID
    return {
        inner["name"]: _default(inner, version) for inner in field["fields"] if _contains(inner["versions"], version)
    }
