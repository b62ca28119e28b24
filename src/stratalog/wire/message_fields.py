"""The encoding of the fields of kio's messages, for code that skips through messages without decoding them."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any, Final

_FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}


@dataclasses.dataclass(frozen=True, slots=True)
class MessageField:
    #: Its number among the tagged fields; None for one that is always there.
    tag: int | None
    is_array: bool
    is_nullable: bool
    #: The class of what it holds, or of the elements of an array; None for simple values.
    entity: Any
    #: Of simple values: bytes; 0 for strings, bytes and records.
    size: int
    is_string: bool


@cache
def message_fields_of(cls: Any) -> tuple[MessageField, ...]:
    """Return the fields of a message class, or of a part of one, as they follow each other."""
    hints = typing.get_type_hints(cls)
    return tuple(_describe(field, hints[field.name]) for field in dataclasses.fields(cls))


def _describe(field: dataclasses.Field[Any], hint: Any) -> MessageField:
    is_nullable = typing.get_origin(hint) in (types.UnionType, typing.Union)
    if is_nullable:
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint = typing.get_args(hint)[0]
    entity = hint if dataclasses.is_dataclass(hint) else None
    kind = field.metadata.get("kafka_type", "")
    return MessageField(
        field.metadata.get("tag"), is_array, is_nullable, entity, _FIXED_SIZES.get(kind, 0), kind == "string"
    )
