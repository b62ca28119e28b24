"""Common parts of records of consumer, streams and share groups in `__consumer_offsets`.

A key is the int16 of its kind, the group id, and, if the record is about one of several members or regular
expressions, its name, both as STRINGs with int16 length. A value is the int16 version 0 and flexible fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from typing import Any, Generic, TypeVar
from uuid import UUID

from stratalog.broker.coordinator_log import KeyValue
from stratalog.broker.groups.modern import ModernChange, TargetEpoch
from stratalog.wire import (
    INT16,
    NUM32,
    NUM64,
    STRING,
    UUID_BYTES,
    FieldReader,
    Form,
    K,
    TaggedForm,
    array,
    converted,
    encoded,
    ended,
    mapping,
    put_count,
    put_string,
    put_tags,
    struct,
)

ChangeT = TypeVar("ChangeT", bound=ModernChange[Any, Any])
_VERSION = INT16.pack(0)


class GroupRecords(Generic[ChangeT]):
    """The records of one type of groups: the form of the value of each kind, and whether the kind has names."""

    def __init__(
        self,
        title: str,
        change: Callable[[Any, str, Any], ChangeT],
        *,
        forms: Mapping[Any, Form[Any]],
        named: Collection[IntEnum],
    ) -> None:
        self._what = f"{title} group record in __consumer_offsets"
        self._change = change
        self._forms = forms
        self._named = named
        self._kinds = {kind.value: kind for kind in forms}

    def encode(self, group_id: str, change: ChangeT) -> KeyValue:
        key = bytearray(INT16.pack(change.kind))
        put_string(key, group_id)
        if change.kind in self._named:
            put_string(key, change.name)
        value = None if change.value is None else _VERSION + encoded(self._forms[change.kind], change.value)
        return bytes(key), value

    def decode(self, key: bytes, value: bytes | None) -> tuple[str, ChangeT] | None:
        """Return the group and its change, or None for another kind of record. CorruptRecordError for invalid data."""
        reader = FieldReader(key, f"key of a {self._what}")
        kind = self._kinds.get(reader.int16())
        if kind is None:
            return None
        group_id, name = reader.string(), reader.string() if kind in self._named else ""
        return group_id, self._change(kind, name, None if value is None else self._read(kind, value))

    def _read(self, kind: Any, data: bytes) -> Any:
        reader = FieldReader(data, self._what)
        reader.version(0, 0)
        return self._forms[kind].read(reader)


def in_text_order(names: Iterable[str]) -> list[str]:
    """Return names in the sort order of Java strings."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


NAMES: Form[frozenset[str]] = converted(array(STRING), in_text_order, frozenset)
NUMBERS = array(NUM32)
#: Topics with their partitions, in the order of the map.
PARTITIONS: Form[Mapping[UUID, tuple[int, ...]]] = mapping(UUID_BYTES, ended(NUMBERS))
TARGET_EPOCH = struct(TargetEpoch, epoch=NUM32, timestamp_ms=TaggedForm(0, NUM64, 0))


def put_epochs(out: bytearray, key: Form[K], held: Mapping[K, Mapping[int, int]]) -> None:
    """Write what a member has: numbers by topic or subtopology, their epochs behind them as tagged field 0."""
    put_count(out, len(held), flexible=True)
    for each, epochs in held.items():
        key.put(out, each)
        NUMBERS.put(out, tuple(epochs))
        put_tags(out, {0: encoded(NUMBERS, tuple(epochs.values()))} if epochs else {})


def read_epochs(reader: FieldReader, key: Form[K], member_epoch: int) -> dict[K, dict[int, int]]:
    """Read numbers with their epochs. Kafka before 4.3 wrote none, so `member_epoch` applies."""
    held = {}
    for _ in range(reader.count()):
        each, numbers = key.read(reader), NUMBERS.read(reader)
        data = reader.tags().get(0)
        epochs = () if data is None else reader.inside(data).whole(NUMBERS.read)
        if len(epochs) != len(numbers):
            epochs = (member_epoch,) * len(numbers)
        held[each] = dict(zip(numbers, epochs, strict=True))
    return held
