"""Records of share groups in `__consumer_offsets`, byte for byte as Apache Kafka writes them.

All integers are big-endian. Keys are the int16 of their schema and STRINGs (int16 length, UTF-8 bytes); values are the
int16 version 0 and flexible fields (KIP-482): an unsigned varint of a length plus one, tagged fields at the end.

    key 10  group, member id  value: rack id, client id, client host, [topic name]
    key 11  group             value: epoch int32, hash of the topics int64
    key 12  group             value: epoch int32, tag 0: timestamp int64 (left out when 0)
    key 13  group, member id  value: [topic id 16 bytes, [partition int32], no tags]
    key 14  group, member id  value: epoch int32, previous epoch int32, state int8, partitions as in 13
    key 15  group             value: initializing, initialized: each [topic id, topic name, [partition int32], no tags],
                              deleting: [topic id, topic name, no tags]

Topic names of members are sorted. Topics and partitions have the order of the given maps.

Source: the schemas ShareGroup*Key and ShareGroup*Value of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from stratalog.broker.coordinator_log import KeyValue
from stratalog.broker.groups.member_records import (
    NO_TAGS,
    decode_key,
    encode_key,
    flexible_reader,
    put_names,
    put_numbers,
    put_target,
    read_names,
    read_numbers,
    read_target,
    tagged_number,
)
from stratalog.broker.groups.modern import GroupEpoch, Target, TargetEpoch
from stratalog.broker.groups.share.values import (
    ShareAssignment,
    ShareChangeKind,
    ShareChangeValue,
    ShareGroupChange,
    ShareSubscription,
    StatePartitions,
    StateTopic,
)
from stratalog.broker.record_fields import INT8, INT16, INT32, INT64, FieldReader, put_count, put_string, put_tags

_NAMED = frozenset({ShareChangeKind.MEMBER, ShareChangeKind.TARGET, ShareChangeKind.CURRENT})
_WHAT = "share group record in __consumer_offsets"
_KINDS = {kind.value: kind for kind in ShareChangeKind}


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_share_change(group_id: str, change: ShareGroupChange) -> KeyValue:
    """Return key and value of the record."""
    key = encode_key(change.kind, group_id, change.member_id if change.kind in _NAMED else None)
    return key, None if change.value is None else _encode_value(change.value)


def _encode_value(value: ShareChangeValue) -> bytes:
    out = bytearray(INT16.pack(0))
    tags: Mapping[int, bytes] = NO_TAGS
    if isinstance(value, ShareSubscription):
        for text in (value.rack_id, value.client_id, value.client_host):
            put_string(out, text, flexible=True)
        put_names(out, value.topics)
    elif isinstance(value, GroupEpoch):
        out += INT32.pack(value.epoch) + INT64.pack(value.metadata_hash)
    elif isinstance(value, TargetEpoch):
        out += INT32.pack(value.epoch)
        tags = {0: INT64.pack(value.timestamp_ms)} if value.timestamp_ms else NO_TAGS
    elif isinstance(value, ShareAssignment):
        out += INT32.pack(value.epoch) + INT32.pack(value.previous_epoch) + INT8.pack(value.state)
        put_target(out, value.assigned)
    elif isinstance(value, StatePartitions):
        _put_state_partitions(out, value)
    else:
        put_target(out, value)
    put_tags(out, tags)
    return bytes(out)


def _put_state_partitions(out: bytearray, value: StatePartitions) -> None:
    for topics in (value.initializing, value.initialized):
        put_count(out, len(topics), flexible=True)
        for topic_id, topic in topics.items():
            out += topic_id.bytes
            put_string(out, topic.name, flexible=True)
            put_numbers(out, topic.partitions)
            put_tags(out, NO_TAGS)
    put_count(out, len(value.deleting), flexible=True)
    for topic_id, name in value.deleting.items():
        out += topic_id.bytes
        put_string(out, name, flexible=True)
        put_tags(out, NO_TAGS)


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_share_change(key: bytes, value: bytes | None) -> tuple[str, ShareGroupChange] | None:
    """Return the group and its change, or None for a record of another kind. CorruptRecordError for damage."""
    found = decode_key(key, _KINDS, _NAMED, _WHAT)
    if found is None:
        return None
    kind, group_id, member_id = found
    return group_id, ShareGroupChange(kind, member_id, None if value is None else _decode_value(kind, value))


def _decode_value(kind: ShareChangeKind, data: bytes) -> ShareChangeValue:
    return _DECODERS[kind](flexible_reader(data, _WHAT))


def _subscription(reader: FieldReader) -> ShareSubscription:
    said = ShareSubscription(
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topics=read_names(reader),
    )
    reader.tags()
    return said


def _group_epoch(reader: FieldReader) -> GroupEpoch:
    epoch = GroupEpoch(reader.int32(), reader.int64())
    reader.tags()
    return epoch


def _target_epoch(reader: FieldReader) -> TargetEpoch:
    return TargetEpoch(reader.int32(), tagged_number(reader.tags(), 0, INT64, 0, _WHAT))


def _target(reader: FieldReader) -> Target:
    target = read_target(reader)
    reader.tags()
    return target


def _assignment(reader: FieldReader) -> ShareAssignment:
    current = ShareAssignment(reader.int32(), reader.int32(), reader.int8(), read_target(reader))
    reader.tags()
    return current


def _state_partitions(reader: FieldReader) -> StatePartitions:
    initializing, initialized = _state_topics(reader), _state_topics(reader)
    deleting: dict[UUID, str] = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        deleting[topic_id] = reader.string()
        reader.tags()
    reader.tags()
    return StatePartitions(initializing, initialized, deleting)


def _state_topics(reader: FieldReader) -> dict[UUID, StateTopic]:
    topics: dict[UUID, StateTopic] = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        topics[topic_id] = StateTopic(reader.string(), read_numbers(reader))
        reader.tags()
    return topics


_DECODERS: Mapping[ShareChangeKind, Callable[[FieldReader], ShareChangeValue]] = {
    ShareChangeKind.MEMBER: _subscription,
    ShareChangeKind.GROUP: _group_epoch,
    ShareChangeKind.TARGET_EPOCH: _target_epoch,
    ShareChangeKind.TARGET: _target,
    ShareChangeKind.CURRENT: _assignment,
    ShareChangeKind.STATE_PARTITIONS: _state_partitions,
}
