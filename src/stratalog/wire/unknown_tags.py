"""Requests with tagged fields that this broker does not know, without those fields.

A client may send tagged fields that came after the broker's schemas, and the broker must skip them (KIP-482). kio's reader
refuses them instead; so a message that it refuses is walked here by the same schema, and read again without them. Only
flexible versions have tagged fields, so only their compact encodings are walked.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any, Final

from stratalog.errors import CorruptRecordError, InvalidRequestError
from stratalog.util.varint import VARINT_BYTES_MAX, decode_unsigned, encode_unsigned

_FIXED_SIZES: Final = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4, "timedelta_i32": 4, "int64": 8,
    "timedelta_i64": 8, "datetime_i64": 8, "float64": 8, "uuid": 16,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """How one field of a message stands in its bytes. `size` is 0 for strings, bytes and records."""

    tag: int | None
    is_array: bool
    is_nullable: bool
    entity: Any
    size: int


def without_unknown_tags(cls: Any, data: bytes) -> bytes:
    """The message of flexible class `cls` at the start of `data`, without the tagged fields that `cls` does not have.

    InvalidRequestError for bytes that do not hold one.
    """
    try:
        walk = _Walk(data)
        walk.entity(cls)
    except (IndexError, CorruptRecordError) as error:
        raise InvalidRequestError("a message that ends within a field") from error
    return b"".join(walk.kept)


class _Walk:
    """Goes through a message; `kept` is what of it stays."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.kept: list[bytes] = []

    def entity(self, cls: Any) -> None:
        fields = _fields(cls)
        for field in fields:
            if field.tag is None:
                self._field(field)
        self._tagged({field.tag for field in fields})

    def _tagged(self, known: set[int | None]) -> None:
        """Tagged fields are kept as they are if they are known: what lies within them has its own size."""
        kept: list[bytes] = []
        for _ in range(self._varint()):
            begin = self.position
            tag = self._varint()
            self._skip(self._varint())
            if tag in known:
                kept.append(self.data[begin : self.position])
        self.kept += [encode_unsigned(len(kept)), *kept]

    def _field(self, field: _Field) -> None:
        if field.is_array:
            begin = self.position
            count = self._varint() - 1
            self._keep(begin)
            for _ in range(count):
                self._element(field)
        elif field.entity is not None and field.is_nullable:
            self._skip(1)
            self._keep(self.position - 1)
            if self.data[self.position - 1] == 1:
                self.entity(field.entity)
        else:
            self._element(field)

    def _element(self, field: _Field) -> None:
        if field.entity is not None:
            self.entity(field.entity)
            return
        begin = self.position
        self._skip(field.size or max(self._varint() - 1, 0))
        self._keep(begin)

    def _keep(self, begin: int) -> None:
        self.kept.append(self.data[begin : self.position])

    def _skip(self, size: int) -> None:
        self.position += size
        if self.position > len(self.data):
            raise IndexError(self.position)

    def _varint(self) -> int:
        value, self.position = decode_unsigned(self.data, self.position, VARINT_BYTES_MAX)
        return value


@cache
def _fields(cls: Any) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(_describe(field, hints[field.name]) for field in dataclasses.fields(cls))


def _describe(field: dataclasses.Field[Any], hint: Any) -> _Field:
    is_nullable = typing.get_origin(hint) in (types.UnionType, typing.Union)
    if is_nullable:
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint = typing.get_args(hint)[0]
    entity = hint if dataclasses.is_dataclass(hint) else None
    size = _FIXED_SIZES.get(field.metadata.get("kafka_type", ""), 0)
    return _Field(field.metadata.get("tag"), is_array, is_nullable, entity, size)
