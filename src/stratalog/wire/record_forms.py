"""Forms of flexible fields (KIP-482): what a record is made of, as a table that is written and read alike.

A form writes and reads values of one type. Small ones are put together: `struct(Member, name=STRING, epoch=INT32_FORM)`
is the form of a whole struct, its fields in the order given and its tagged fields behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Generic, TypeVar

from stratalog.wire.record_fields import INT8, INT16, INT32, INT64, FieldReader, put_count, put_string, put_tags

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How values of a type are written and read. Reading raises CorruptRecordError for damage."""

    put: Callable[[bytearray, T], None]
    read: Callable[[FieldReader], T]


@dataclass(frozen=True, slots=True)
class TaggedForm(Generic[T]):
    """A tagged field. A value that is `absent` is left out, unless the field is `always` written."""

    number: int
    form: Form[T]
    absent: T
    always: bool = False


def _number(packer: Struct, read: Callable[[FieldReader], int]) -> Form[int]:
    pack = packer.pack
    return Form(lambda out, number: out.extend(pack(number)), read)


def _put_text(out: bytearray, text: str | None) -> None:
    put_string(out, text, flexible=True)


def _put_blob(out: bytearray, data: bytes | None) -> None:
    put_count(out, -1 if data is None else len(data), flexible=True)
    out += data or b""


NUM8 = _number(INT8, FieldReader.int8)
NUM16 = _number(INT16, FieldReader.int16)
NUM32 = _number(INT32, FieldReader.int32)
NUM64 = _number(INT64, FieldReader.int64)
UUID_BYTES = Form(lambda out, uuid: out.extend(uuid.bytes), FieldReader.uuid)
STRING: Form[str] = Form(_put_text, FieldReader.string)
NULLABLE_STRING: Form[str | None] = Form(_put_text, FieldReader.nullable_string)
BLOB: Form[bytes] = Form(_put_blob, FieldReader.blob)
NULLABLE_BLOB: Form[bytes | None] = Form(_put_blob, FieldReader.nullable_blob)


def converted(form: Form[Any], before: Callable[[T], Any], after: Callable[[Any], T]) -> Form[T]:
    """Return the form of values that are written as others."""
    put, read = form.put, form.read
    return Form(lambda out, value: put(out, before(value)), lambda reader: after(read(reader)))


def array(entry: Form[V]) -> Form[tuple[V, ...]]:
    put_entry, read_entry = entry.put, entry.read

    def put(out: bytearray, values: Collection[V]) -> None:
        put_count(out, len(values), flexible=True)
        for value in values:
            put_entry(out, value)

    return Form(put, lambda reader: tuple([read_entry(reader) for _ in range(reader.count())]))


def nullable_array(entry: Form[V]) -> Form[tuple[V, ...] | None]:
    """Return the form of a tagged array, which is left out when it is null; a null that is read is None too."""
    whole = array(entry)

    def read(reader: FieldReader) -> tuple[V, ...] | None:
        count = reader.count()
        return None if count < 0 else tuple([entry.read(reader) for _ in range(count)])

    return Form(lambda out, values: whole.put(out, values or ()), read)


def nullable(form: Form[T], null: int) -> Form[T | None]:
    """Return the form of a value that may be null: an int8, `null` or 1, goes before it."""

    def put(out: bytearray, value: T | None) -> None:
        out += INT8.pack(null if value is None else 1)
        if value is not None:
            form.put(out, value)

    return Form(put, lambda reader: None if reader.int8() == null else form.read(reader))


def ended(form: Form[T]) -> Form[T]:
    """Return the form of a value that is the last field of a struct without tagged fields."""

    def put(out: bytearray, value: T) -> None:
        form.put(out, value)
        put_tags(out, {})

    def read(reader: FieldReader) -> T:
        value = form.read(reader)
        reader.tags()
        return value

    return Form(put, read)


def mapping(key: Form[K], value: Form[V], order: Callable[[Mapping[K, V]], Iterable[K]] = iter) -> Form[Mapping[K, V]]:
    """Return the form of an array of keys, each with its value (which ends the struct), in an order of the keys."""
    put_key, put_value, read_key, read_value = key.put, value.put, key.read, value.read

    def put(out: bytearray, held: Mapping[K, V]) -> None:
        put_count(out, len(held), flexible=True)
        for each in order(held):
            put_key(out, each)
            put_value(out, held[each])

    def read(reader: FieldReader) -> Mapping[K, V]:
        held = {}
        for _ in range(reader.count()):
            each = read_key(reader)
            held[each] = read_value(reader)
        return held

    return Form(put, read)


def struct(cls: Callable[..., T], /, **fields: Form[Any] | TaggedForm[Any]) -> Form[T]:
    """Return the form of a struct: its fields by their name in `cls`, the tagged ones last."""
    plain = {name: form for name, form in fields.items() if isinstance(form, Form)}
    tagged = {name: tag for name, tag in fields.items() if isinstance(tag, TaggedForm)}
    puts = [(name, form.put) for name, form in plain.items()]
    reads = [(name, form.read) for name, form in plain.items()]

    def put(out: bytearray, value: T) -> None:
        for name, put_field in puts:
            put_field(out, getattr(value, name))
        present = {}
        for name, tag in tagged.items():
            content = getattr(value, name, tag.absent)
            if tag.always or content != tag.absent:
                present[tag.number] = encoded(tag.form, content)
        put_tags(out, present)

    def read(reader: FieldReader) -> T:
        values = {name: read_field(reader) for name, read_field in reads}
        found = reader.tags()
        for name, tag in tagged.items():
            data = found.get(tag.number)
            values[name] = tag.absent if data is None else reader.inside(data).whole(tag.form.read)
        return cls(**values)

    return Form(put, read)


def encoded(form: Form[T], value: T) -> bytes:
    out = bytearray()
    form.put(out, value)
    return bytes(out)
