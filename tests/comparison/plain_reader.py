"""Read a response into dicts, lists and plain numbers, as they came: nothing is checked, nothing is converted.

kio's own reader makes times of numbers, and refuses those that are none; a comparison wants the numbers.
"""

from __future__ import annotations

import dataclasses
import struct
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from stratalog.util.varint import decode_unsigned
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.message_fields import MessageField, message_fields_of
from stratalog.wire.protocol import response_class

_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "int64": ">q",
    "bool": ">?",
    "float64": ">d",
    "error_code": ">h",
    "datetime_i64": ">q",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
}


def read_response(key: ApiKey, version: int, body: bytes) -> dict[str, Any]:
    """The response whose frame, behind its size, is `body`. What is left behind it is under `left over`."""
    cls = response_class(key, version)
    reader = _Reader(body, 4, flexible=cls.__flexible__)
    if cls.__flexible__ and key is not ApiKey.API_VERSIONS:
        reader.skip_tags()
    answer = reader.entity(cls)
    if reader.position != len(body):
        answer["left over"] = body[reader.position :]
    return answer


class _Field(NamedTuple):
    name: str
    kind: str
    of: MessageField


@cache
def _fields(cls: Any) -> list[_Field]:
    pairs = zip(dataclasses.fields(cls), message_fields_of(cls), strict=True)
    return [_Field(field.name, field.metadata.get("kafka_type", ""), known) for field, known in pairs]


class _Reader:
    def __init__(self, data: bytes, position: int, *, flexible: bool) -> None:
        self._data = data
        self.position = position
        self._flexible = flexible

    def entity(self, cls: Any) -> dict[str, Any]:
        fields = _fields(cls)
        found = {field.name: self._field(field) for field in fields if field.of.tag is None}
        if self._flexible:
            tagged = {field.of.tag: field for field in fields if field.of.tag is not None}
            for _ in range(self._varint()):
                tag, size = self._varint(), self._varint()
                end = self.position + size
                known = tagged.get(tag)
                found[f"tag {tag}" if known is None else known.name] = (
                    self._data[self.position : end] if known is None else self._field(known)
                )
                self.position = end
        return found

    def skip_tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            self.position += size

    def _field(self, field: _Field) -> Any:
        if not field.of.is_array:
            is_marked = field.of.entity is not None and field.of.is_nullable and field.of.tag is None
            if is_marked and self._take(">b") < 0:
                return None
            return self._element(field)
        count = self._varint() - 1 if self._flexible else self._take(">i")
        return None if count < 0 else [self._element(field) for _ in range(count)]

    def _element(self, field: _Field) -> Any:
        if field.of.entity is not None:
            return self.entity(field.of.entity)
        if field.kind in _NUMBERS:
            return self._take(_NUMBERS[field.kind])
        if field.kind == "uuid":
            return UUID(bytes=self._bytes(16))
        if self._flexible:
            size = self._varint() - 1
        else:
            size = self._take(">h" if field.kind == "string" else ">i")
        if size < 0:
            return None
        data = self._bytes(size)
        return data.decode() if field.kind == "string" else data

    def _take(self, format_: str) -> Any:
        (value,) = struct.unpack_from(format_, self._data, self.position)
        self.position += struct.calcsize(format_)
        return value

    def _bytes(self, size: int) -> bytes:
        found = self._data[self.position : self.position + size]
        self.position += size
        return found

    def _varint(self) -> int:
        value, self.position = decode_unsigned(self._data, self.position, 5)
        return value
