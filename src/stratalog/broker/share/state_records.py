"""Records of `__share_group_state`, byte for byte as Apache Kafka writes them.

All integers are big-endian. A key is the int16 of its kind, the group as a STRING (int16 length, UTF-8 bytes), the id
of the topic (16 bytes) and the partition int32. Values are the int16 version 0 and flexible fields (KIP-482).

    kind 0  snapshot  snapshot epoch int32, state epoch int32, leader epoch int32, start offset int64, created and
                      written (ms since 1970) int64, [batch], tag 0: how many records in flight are done int32
    kind 1  update    snapshot epoch int32, leader epoch int32, start offset int64, [batch], tag 0 as above
    batch             first and last offset int64, state int8, delivery count int16, no tags

A count of -1 is not written. A snapshot replaces all records before it; an update applies to the snapshot with the same
epoch. Source: the schemas ShareSnapshot* and ShareUpdate* of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, Final
from uuid import UUID

from stratalog.broker.coordinator_log import KeyValue
from stratalog.util import uuid_to_base64
from stratalog.wire import (
    INT16,
    INT32,
    NUM8,
    NUM16,
    NUM32,
    NUM64,
    FieldReader,
    Form,
    TaggedForm,
    array,
    encoded,
    put_count,
    put_string,
    struct,
)

_BATCH: Final = Struct(">qqbhB")
_NO_TAGS: Final = 0
_WHAT = "record in __share_group_state"
NOT_KNOWN = -1


class ShareRecordKind(IntEnum):
    """The number that a key begins with."""

    SNAPSHOT = 0
    UPDATE = 1


@dataclass(frozen=True, slots=True)
class ShareKey:
    """The key of a group's state of one partition."""

    group_id: str
    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        """Return the name that determines the state's coordinator and its partition of the topic."""
        return f"{self.group_id}:{uuid_to_base64(self.topic_id)}:{self.partition}"


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Records with the same state, offsets inclusive. `state` is not validated: later Kafkas may have more states."""

    first: int
    last: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUpdate:
    """Changes since a snapshot. A start offset of -1: unchanged."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    done_count: int = NOT_KNOWN
    batches: tuple[StateBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSnapshot:
    """A complete state. A start offset of -1: nothing was delivered, and the group's settings determine the start."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    done_count: int = NOT_KNOWN
    created_ms: int = NOT_KNOWN
    written_ms: int = NOT_KNOWN
    batches: tuple[StateBatch, ...] = ()


def encode_share_state(key: ShareKey, value: ShareSnapshot | ShareUpdate | None) -> KeyValue:
    """Return key and value of a record; without a value, the tombstone of a snapshot."""
    kind = ShareRecordKind.UPDATE if isinstance(value, ShareUpdate) else ShareRecordKind.SNAPSHOT
    head = bytearray(INT16.pack(kind))
    put_string(head, key.group_id)
    head += key.topic_id.bytes + INT32.pack(key.partition)
    return bytes(head), None if value is None else INT16.pack(0) + encoded(_FORMS[kind], value)


def decode_share_key(data: bytes) -> tuple[ShareRecordKind, ShareKey] | None:
    """Return kind and key, or None for an unknown kind of record. CorruptRecordError for invalid data."""
    reader = FieldReader(data, f"key of a {_WHAT}")
    number = reader.int16()
    if number not in (ShareRecordKind.SNAPSHOT, ShareRecordKind.UPDATE):
        return None
    return ShareRecordKind(number), ShareKey(reader.string(), reader.uuid(), reader.int32())


def decode_share_value(kind: ShareRecordKind, data: bytes) -> ShareSnapshot | ShareUpdate:
    """Return the value of a record. CorruptRecordError for invalid data."""
    reader = FieldReader(data, _WHAT)
    reader.version(0, 0)
    found: ShareSnapshot | ShareUpdate = _FORMS[kind].read(reader)
    return found


def _put_batches(out: bytearray, batches: Sequence[StateBatch]) -> None:
    put_count(out, len(batches), flexible=True)
    for batch in batches:
        out += _BATCH.pack(batch.first, batch.last, batch.state, batch.delivery_count, _NO_TAGS)


_BATCHES = Form(_put_batches, array(struct(StateBatch, first=NUM64, last=NUM64, state=NUM8, delivery_count=NUM16)).read)
_DONE_COUNT = TaggedForm(0, NUM32, NOT_KNOWN)
_FORMS: Mapping[ShareRecordKind, Form[Any]] = {
    ShareRecordKind.SNAPSHOT: struct(
        ShareSnapshot,
        snapshot_epoch=NUM32,
        state_epoch=NUM32,
        leader_epoch=NUM32,
        start_offset=NUM64,
        created_ms=NUM64,
        written_ms=NUM64,
        batches=_BATCHES,
        done_count=_DONE_COUNT,
    ),
    ShareRecordKind.UPDATE: struct(
        ShareUpdate,
        snapshot_epoch=NUM32,
        leader_epoch=NUM32,
        start_offset=NUM64,
        batches=_BATCHES,
        done_count=_DONE_COUNT,
    ),
}
