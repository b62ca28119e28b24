"""Keys and values of the records in `__consumer_offsets`, byte for byte as Apache Kafka writes them.

All integers are big-endian. STRING is an int16 length and UTF-8 bytes, a nullable one has length -1 for null; BYTES has
an int32 length. Both begin with the int16 version of their schema:

    key 1    OffsetCommitKey     group STRING, topic STRING, partition int32            (0 is read as 1)
    key 2    GroupMetadataKey    group STRING
    value 4  OffsetCommitValue   offset int64, leader epoch int32, metadata as an unsigned varint of length + 1 and
                                 UTF-8 bytes, commit timestamp int64, tagged fields: 0 is the topic id, 16 bytes
    value 3  OffsetCommitValue   offset int64, leader epoch int32, metadata STRING, commit timestamp int64
    value 1  OffsetCommitValue   offset int64, metadata STRING, commit timestamp int64, expire timestamp int64
    value 3  GroupMetadataValue  protocol type STRING, generation int32, protocol nullable STRING, leader nullable
                                 STRING, state timestamp int64, members int32 count of: member id STRING, instance id
                                 nullable STRING, client id STRING, client host STRING, rebalance timeout int32, session
                                 timeout int32, subscription BYTES, assignment BYTES

A null value is a tombstone. Written are key 1 with value 4 (value 1 for a commit with its own expiry, 3 if the topic id
is unknown), and key 2 with value 3. Older values (0 to 2) and the flexible GroupMetadataValue 4 are read. Keys 3 and
above belong to other types of groups.

Members are written in the order in which they joined. Kafka uses the order of a Java HashMap over random ids, which has
no meaning: with several members the records are equal except for the order.

Source: Kafka's OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue schemas.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.values import GroupMetadata, MemberMetadata
from stratalog.errors import CorruptRecordError
from stratalog.util import encode_unsigned
from stratalog.wire import INT16, INT32, INT64, FieldReader, put_string

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_EXPIRING = 1
OFFSET_VALUE_VERSION_FLEXIBLE = 4
VALUE_VERSION_MAX = 4
_FLEXIBLE = 4
_TOPIC_ID_TAG = 0
#: Version, offset, leader epoch.
_FLEXIBLE_HEAD = struct.Struct(">hqi")
#: One tagged field, its tag, and its size.
_TOPIC_ID_FOLLOWS = bytes((1, _TOPIC_ID_TAG, 16))
#: Size of a value with a topic id and without metadata. One byte encodes a metadata length of up to 126 bytes.
_FLEXIBLE_LENGTH = _FLEXIBLE_HEAD.size + 1 + 8 + len(_TOPIC_ID_FOLLOWS) + 16
_VERSION_AND_LENGTH = struct.Struct(">hh")


@dataclass(frozen=True, slots=True)
class OffsetKey:
    group_id: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Key of a group's metadata."""

    group_id: str


def encode_offset_key(key: OffsetKey) -> bytes:
    out = bytearray(INT16.pack(OFFSET_KEY_VERSION))
    put_string(out, key.group_id)
    put_string(out, key.partition.topic)
    out += INT32.pack(key.partition.partition)
    return bytes(out)


def encode_group_key(key: GroupKey) -> bytes:
    out = bytearray(INT16.pack(GROUP_KEY_VERSION))
    put_string(out, key.group_id)
    return bytes(out)


def encode_offset_value(committed: CommittedOffset) -> bytes:
    if committed.expire_timestamp_ms is not None:
        out = bytearray(INT16.pack(OFFSET_VALUE_VERSION_EXPIRING) + INT64.pack(committed.offset))
        put_string(out, committed.metadata)
        out += INT64.pack(committed.commit_timestamp_ms) + INT64.pack(committed.expire_timestamp_ms)
        return bytes(out)
    if committed.topic_id is not None:
        return _encode_flexible_offset_value(committed, committed.topic_id)
    out = bytearray(INT16.pack(OFFSET_VALUE_VERSION) + INT64.pack(committed.offset))
    out += INT32.pack(committed.leader_epoch)
    put_string(out, committed.metadata)
    out += INT64.pack(committed.commit_timestamp_ms)
    return bytes(out)


def _encode_flexible_offset_value(committed: CommittedOffset, topic_id: UUID) -> bytes:
    metadata = committed.metadata.encode()
    head = _FLEXIBLE_HEAD.pack(OFFSET_VALUE_VERSION_FLEXIBLE, committed.offset, committed.leader_epoch)
    timestamp = INT64.pack(committed.commit_timestamp_ms)
    return b"".join((head, encode_unsigned(len(metadata) + 1), metadata, timestamp, _TOPIC_ID_FOLLOWS, topic_id.bytes))


def encode_group_value(stored: GroupMetadata) -> bytes:
    out = bytearray(INT16.pack(GROUP_VALUE_VERSION))
    put_string(out, stored.protocol_type)
    out += INT32.pack(stored.generation)
    put_string(out, stored.protocol)
    put_string(out, stored.leader)
    out += INT64.pack(stored.state_timestamp_ms) + INT32.pack(len(stored.members))
    for member in stored.members:
        put_string(out, member.member_id)
        put_string(out, member.instance_id)
        put_string(out, member.client_id)
        put_string(out, member.client_host)
        out += INT32.pack(member.rebalance_timeout_ms) + INT32.pack(member.session_timeout_ms)
        for blob in (member.subscription, member.assignment):
            out += INT32.pack(len(blob)) + blob
    return bytes(out)


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Return the key of a record, or None for an unknown type of group. CorruptRecordError for invalid data."""
    return _usual_offset_key(data) or decode_any_key(data)


def decode_offset_value(data: bytes) -> CommittedOffset:
    """Return a commit from any version; CorruptRecordError for invalid data or an unknown version."""
    return _usual_offset_value(data) or decode_any_offset_value(data)


def _usual_offset_key(data: bytes) -> OffsetKey | None:
    """Decode a key of the written version, like `decode_any_key`; return None for any other key."""
    try:
        version, length = _VERSION_AND_LENGTH.unpack_from(data)
        topic_at = 4 + length
        (topic_length,) = INT16.unpack_from(data, topic_at)
        partition_at = topic_at + 2 + topic_length
        if version != OFFSET_KEY_VERSION or length < 0 or topic_length < 0 or len(data) != partition_at + 4:
            return None
        (partition,) = INT32.unpack_from(data, partition_at)
        group_id, topic = data[4:topic_at].decode(), data[topic_at + 2 : partition_at].decode()
    except (struct.error, UnicodeDecodeError):
        return None
    return OffsetKey(group_id, TopicPartition(topic, partition))


def _usual_offset_value(data: bytes) -> CommittedOffset | None:
    """Decode a valid value with a topic id, like `decode_any_offset_value`; return None for any other value."""
    head = _FLEXIBLE_HEAD.size
    if len(data) < _FLEXIBLE_LENGTH or data[head] - 1 != len(data) - _FLEXIBLE_LENGTH:
        return None
    version, offset, leader_epoch = _FLEXIBLE_HEAD.unpack_from(data)
    timestamp_at = head + data[head]
    if version != OFFSET_VALUE_VERSION_FLEXIBLE or data[timestamp_at + 8 : -16] != _TOPIC_ID_FOLLOWS:
        return None
    try:
        metadata = data[head + 1 : timestamp_at].decode()
    except UnicodeDecodeError:
        return None
    (timestamp_ms,) = INT64.unpack_from(data, timestamp_at)
    return CommittedOffset(offset, metadata, timestamp_ms, leader_epoch, None, _uuid(data[-16:]))


@lru_cache(maxsize=10_000)
def _uuid(data: bytes) -> UUID:
    """Return a cached UUID: most commits are for few topics."""
    return UUID(bytes=data)


def decode_any_key(data: bytes) -> OffsetKey | GroupKey | None:
    reader = FieldReader(data, "key of a __consumer_offsets record")
    version = reader.int16()
    if version in (0, OFFSET_KEY_VERSION):
        return OffsetKey(reader.string(), TopicPartition(reader.string(), reader.int32()))
    return GroupKey(reader.string()) if version == GROUP_KEY_VERSION else None


def decode_any_offset_value(data: bytes) -> CommittedOffset:
    reader = FieldReader(data, "offset commit in __consumer_offsets")
    version = reader.version(VALUE_VERSION_MAX, _FLEXIBLE)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    timestamp_ms = reader.int64()
    expire_ms = reader.int64() if version == OFFSET_VALUE_VERSION_EXPIRING else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG)
    if topic_id is not None and len(topic_id) != 16:
        raise CorruptRecordError(f"offset commit in __consumer_offsets: a topic id of {len(topic_id)} bytes, not 16")
    return CommittedOffset(
        offset,
        metadata,
        timestamp_ms,
        leader_epoch,
        None if expire_ms == -1 else expire_ms,
        None if topic_id is None else UUID(bytes=topic_id),
    )


def decode_group_value(data: bytes) -> GroupMetadata:
    """Return a group's metadata from any version; CorruptRecordError for invalid data or an unknown version."""
    reader = FieldReader(data, "group metadata in __consumer_offsets")
    version = reader.version(VALUE_VERSION_MAX, _FLEXIBLE)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else -1
    members = []
    for _ in range(reader.count()):
        members.append(
            MemberMetadata(
                member_id=reader.string(),
                instance_id=reader.nullable_string() if version >= 3 else None,
                client_id=reader.string(),
                client_host=reader.string(),
                rebalance_timeout_ms=reader.int32() if version >= 1 else -1,
                session_timeout_ms=reader.int32(),
                subscription=reader.blob(),
                assignment=reader.blob(),
            )
        )
        reader.tags()
    reader.tags()
    return GroupMetadata(protocol_type, generation, protocol, leader, state_timestamp_ms, tuple(members))
