"""Type annotations of the generated records, from which kio's readers and writers are made.

A record has one class for all its versions; a field that a version lacks has its default. `version_class` makes the
class that kio reads one version into: the same fields, without the ones that came later.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from types import GenericAlias, UnionType
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints
from uuid import UUID

from stratalog.wire.protocol import entity_type

Bool = Annotated[bool, "bool"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Uint16 = Annotated[int, "uint16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
Float64 = Annotated[float, "float64"]
String = Annotated[str, "string"]
Bytes = Annotated[bytes, "bytes"]
#: The zero UUID is None.
Uuid = Annotated[UUID | None, "uuid"]


@dataclass(frozen=True, slots=True)
class Since:
    """The first version that has the field."""

    version: int


@dataclass(frozen=True, slots=True)
class Tag:
    """A tagged field (KIP-482): written only when it is not the default."""

    number: int


class Message:
    """A record or a part of one. Two are equal when all fields are, whatever version they were read from."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Message) and _definition(self) is _definition(other) and _values(self) == _values(other)
        )

    def __hash__(self) -> int:
        return hash(_values(self))


class MetadataRecord(Message):
    """The fields of a record of the metadata log."""


M = TypeVar("M", bound=type)


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
def message(cls: M) -> M:
    """Make a frozen dataclass of it. Its defaults stay attributes of the class: older versions find them there."""
    return dataclass(frozen=True, kw_only=True, eq=False)(cls)  # type: ignore[return-value]


def _definition(record: Message) -> Any:
    """Return the class that the record was generated as."""
    cls = type(record)
    return cls.__base__ if "__version__" in vars(cls) else cls


def _values(record: Message) -> tuple[object, ...]:
    return tuple(getattr(record, field.name) for field in dataclasses.fields(_definition(record)))


@cache
def version_class(cls: type[Message], version: int) -> Any:
    """Return the subclass of a message that kio reads and writes as `version`."""
    hints = get_type_hints(cls, include_extras=True)
    annotations: dict[str, Any] = {}
    fields = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        type_, marks = _unwrap(hints[field.name])
        if any(isinstance(each, Since) and each.version > version for each in marks):
            continue
        annotations[field.name], kind = _kio_type(type_, version)
        metadata: dict[str, Any] = {} if kind is None else {"kafka_type": kind}
        metadata |= next(({"tag": each.number} for each in marks if isinstance(each, Tag)), {})
        entry = dataclasses.field(default=field.default, metadata=metadata)
        fields.append((field.name, annotations[field.name], entry))
    namespace = {
        "__annotations__": annotations,
        "__type__": entity_type("data"),
        "__version__": version,
        "__flexible__": True,
    }
    made: Any = type(cls.__name__, (cls,), namespace)
    layout: Any = dataclasses.make_dataclass("Layout", fields, kw_only=True)
    made.__dataclass_fields__ = layout.__dataclass_fields__
    return made


def _unwrap(hint: Any) -> tuple[Any, tuple[object, ...]]:
    """Return a field's type and the marks on it; the name of a primitive is part of its type."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    type_, *marks = get_args(hint)
    own = tuple(each for each in marks if not isinstance(each, str))
    kinds = [each for each in marks if isinstance(each, str)]
    return (Annotated[type_, kinds[0]] if kinds else type_), own


def _kio_type(hint: Any, version: int) -> tuple[Any, str | None]:
    """Return the type that kio is given, and the name of the primitive in it, if it is one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return arguments
    if origin is tuple:
        inner, kind = _kio_type(arguments[0], version)
        return GenericAlias(tuple, (inner, ...)), kind
    if origin is UnionType or type(None) in arguments:
        (present,) = (each for each in arguments if each is not type(None))
        inner, kind = _kio_type(present, version)
        return inner | None, kind
    return version_class(hint, version), None
