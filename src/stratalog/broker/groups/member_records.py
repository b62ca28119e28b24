"""Common parts of records of consumer, streams and share groups in `__consumer_offsets`.

A key is the int16 of its schema, the group id, and, if the record is about one of several members or regular
expressions, its name, both as STRINGs with int16 length. Values are flexible.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from enum import IntEnum
from struct import Struct
from typing import TypeAlias, TypeVar
from uuid import UUID

from stratalog.broker.record_fields import INT16, INT32, FieldReader, put_count, put_string, put_tags
from stratalog.errors import CorruptRecordError

NO_TAGS: Mapping[int, bytes] = {}

_Kind = TypeVar("_Kind", bound=IntEnum)
_Partitions: TypeAlias = Mapping[UUID, tuple[int, ...]]


def encode_key(kind: IntEnum, group_id: str, name: str | None) -> bytes:
    """Return the key of a record; `name` is None if the record is about the group itself."""
    key = bytearray(INT16.pack(kind))
    put_string(key, group_id)
    if name is not None:
        put_string(key, name)
    return bytes(key)


def decode_key(
    key: bytes, kinds: Mapping[int, _Kind], named: Container[_Kind], what: str
) -> tuple[_Kind, str, str] | None:
    """Return kind, group id and name ("" for a kind that is not `named`); None for another kind of record.

    Raises CorruptRecordError for invalid data.
    """
    reader = FieldReader(key, f"key of a {what}")
    kind = kinds.get(reader.int16())
    if kind is None:
        return None
    return kind, reader.string(), reader.string() if kind in named else ""


def flexible_reader(data: bytes, what: str) -> FieldReader:
    """Return a reader of a flexible value of version 0."""
    reader = FieldReader(data, what)
    reader.version(0, 0)
    return reader


def tag_reader(data: bytes, what: str) -> FieldReader:
    """Return a reader of the content of a tagged field of version 0."""
    return flexible_reader(b"\0\0" + data, what)


def tagged_number(tags: Mapping[int, bytes], tag: int, form: Struct, default: int, what: str) -> int:
    """Return the number in a tagged field; CorruptRecordError for a wrong size."""
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != form.size:
        raise CorruptRecordError(f"{what}: a tagged number of {len(data)} bytes, not {form.size}")
    return int(form.unpack(data)[0])


def in_text_order(names: Iterable[str]) -> list[str]:
    """Return names in the sort order of Java strings."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def put_names(out: bytearray, names: Collection[str]) -> None:
    put_count(out, len(names), flexible=True)
    for name in in_text_order(names):
        put_string(out, name, flexible=True)


def read_names(reader: FieldReader) -> frozenset[str]:
    return frozenset([reader.string() for _ in range(reader.count())])


def put_numbers(out: bytearray, numbers: Collection[int], form: Struct = INT32) -> None:
    put_count(out, len(numbers), flexible=True)
    out += b"".join([form.pack(number) for number in numbers])


def read_numbers(reader: FieldReader) -> tuple[int, ...]:
    return tuple([reader.int32() for _ in range(reader.count())])


def put_target(out: bytearray, target: _Partitions) -> None:
    """Write topics with their partitions, in the order of the map."""
    put_count(out, len(target), flexible=True)
    for topic_id, partitions in target.items():
        out += topic_id.bytes
        put_numbers(out, partitions)
        put_tags(out, NO_TAGS)


def read_target(reader: FieldReader) -> _Partitions:
    target: dict[UUID, tuple[int, ...]] = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        target[topic_id] = read_numbers(reader)
        reader.tags()
    return target
