"""Keys and values of the records in `__consumer_offsets`, byte for byte as Apache Kafka writes them.

All integers are big-endian. STRING is an int16 length and UTF-8 bytes, a nullable one has length -1 for null; BYTES has an
int32 length. Both begin with the int16 version of their schema:

    key 1    OffsetCommitKey     group STRING, topic STRING, partition int32            (0 is read as 1)
    key 2    GroupMetadataKey    group STRING
    value 4  OffsetCommitValue   offset int64, leader epoch int32, metadata as an unsigned varint of length + 1 and UTF-8
                                 bytes, commit timestamp int64, tagged fields: 0 is the topic id, 16 bytes
    value 3  OffsetCommitValue   offset int64, leader epoch int32, metadata STRING, commit timestamp int64
    value 1  OffsetCommitValue   offset int64, metadata STRING, commit timestamp int64, expire timestamp int64
    value 3  GroupMetadataValue  protocol type STRING, generation int32, protocol nullable STRING, leader nullable STRING,
                                 state timestamp int64, members int32 count of: member id STRING, instance id nullable
                                 STRING, client id STRING, client host STRING, rebalance timeout int32, session timeout
                                 int32, subscription BYTES, assignment BYTES

A null value is a tombstone. Written are: key 1 with value 4 (value 1 when the commit has an expiry of its own, 3 when the
topic's id is not known), and key 2 with value 3. Older values (0 to 2) and the flexible GroupMetadataValue 4 are read. Keys
3 and above belong to other kinds of groups.

Members are written in the order in which they joined. Kafka's order is that of a Java HashMap over their random ids and
says nothing: with several members the records are equal up to it.

Source: Kafka's OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue schemas.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.values import GroupMetadata, MemberMetadata
from stratalog.errors import CorruptRecordError

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_EXPIRING = 1
OFFSET_VALUE_VERSION_FLEXIBLE = 4
VALUE_VERSION_MAX = 4
_FLEXIBLE = 4
_TOPIC_ID_TAG = 0

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Key of a commit."""

    group_id: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Key of a group's metadata."""

    group_id: str


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` that a group's records go to: |Java's String.hashCode| modulo the count."""
    value = 0
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (value * 31 + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    magnitude = 0 if signed == -(1 << 31) else abs(signed)
    return magnitude % partition_count


# --- writing ------------------------------------------------------------------------------------------------------------


def encode_offset_key(key: OffsetKey) -> bytes:
    out = bytearray(_INT16.pack(OFFSET_KEY_VERSION))
    _put_string(out, key.group_id)
    _put_string(out, key.partition.topic)
    out += _INT32.pack(key.partition.partition)
    return bytes(out)


def encode_group_key(key: GroupKey) -> bytes:
    out = bytearray(_INT16.pack(GROUP_KEY_VERSION))
    _put_string(out, key.group_id)
    return bytes(out)


def encode_offset_value(committed: CommittedOffset) -> bytes:
    if committed.expire_timestamp_ms is not None:
        out = bytearray(_INT16.pack(OFFSET_VALUE_VERSION_EXPIRING) + _INT64.pack(committed.offset))
        _put_string(out, committed.metadata)
        out += _INT64.pack(committed.commit_timestamp_ms) + _INT64.pack(committed.expire_timestamp_ms)
        return bytes(out)
    if committed.topic_id is not None:
        return _encode_flexible_offset_value(committed, committed.topic_id)
    out = bytearray(_INT16.pack(OFFSET_VALUE_VERSION) + _INT64.pack(committed.offset))
    out += _INT32.pack(committed.leader_epoch)
    _put_string(out, committed.metadata)
    out += _INT64.pack(committed.commit_timestamp_ms)
    return bytes(out)


def _encode_flexible_offset_value(committed: CommittedOffset, topic_id: UUID) -> bytes:
    metadata = committed.metadata.encode()
    out = bytearray(_INT16.pack(OFFSET_VALUE_VERSION_FLEXIBLE) + _INT64.pack(committed.offset))
    out += _INT32.pack(committed.leader_epoch)
    _put_unsigned_varint(out, len(metadata) + 1)
    out += metadata + _INT64.pack(committed.commit_timestamp_ms)
    for number in (1, _TOPIC_ID_TAG, len(topic_id.bytes)):  # one tagged field: its tag and its size
        _put_unsigned_varint(out, number)
    out += topic_id.bytes
    return bytes(out)


def encode_group_value(stored: GroupMetadata) -> bytes:
    out = bytearray(_INT16.pack(GROUP_VALUE_VERSION))
    _put_string(out, stored.protocol_type)
    out += _INT32.pack(stored.generation)
    _put_string(out, stored.protocol)
    _put_string(out, stored.leader)
    out += _INT64.pack(stored.state_timestamp_ms) + _INT32.pack(len(stored.members))
    for member in stored.members:
        _put_string(out, member.member_id)
        _put_string(out, member.instance_id)
        _put_string(out, member.client_id)
        _put_string(out, member.client_host)
        out += _INT32.pack(member.rebalance_timeout_ms) + _INT32.pack(member.session_timeout_ms)
        for blob in (member.subscription, member.assignment):
            out += _INT32.pack(len(blob)) + blob
    return bytes(out)


def _put_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _INT16.pack(-1)
        return
    encoded = text.encode()
    out += _INT16.pack(len(encoded)) + encoded


def _put_unsigned_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# --- reading ------------------------------------------------------------------------------------------------------------


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """The key of a record; None for a kind of group that is not known here. CorruptRecordError for damage."""
    reader = _Reader(data, "key of a __consumer_offsets record")
    version = reader.int16()
    if version in (0, OFFSET_KEY_VERSION):
        return OffsetKey(reader.string(), TopicPartition(reader.string(), reader.int32()))
    return GroupKey(reader.string()) if version == GROUP_KEY_VERSION else None


def decode_offset_value(data: bytes) -> CommittedOffset:
    """Any version of a commit; CorruptRecordError for damage or a version from the future."""
    reader = _Reader(data, "offset commit in __consumer_offsets")
    version = reader.version()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    timestamp_ms = reader.int64()
    expire_ms = reader.int64() if version == OFFSET_VALUE_VERSION_EXPIRING else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG)
    if topic_id is not None and len(topic_id) != 16:
        raise CorruptRecordError(
            f"offset commit in __consumer_offsets: a topic id of {len(topic_id)} bytes, not 16"
        )
    return CommittedOffset(
        offset,
        metadata,
        timestamp_ms,
        leader_epoch,
        None if expire_ms == -1 else expire_ms,
        None if topic_id is None else UUID(bytes=topic_id),
    )


def decode_group_value(data: bytes) -> GroupMetadata:
    """Any version of a group's metadata; CorruptRecordError for damage or a version from the future."""
    reader = _Reader(data, "group metadata in __consumer_offsets")
    version = reader.version()
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


class _Reader:
    """Reads fields one after the other; anything that does not fit is a CorruptRecordError."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0
        self._flexible = False

    def version(self) -> int:
        version = self.int16()
        if not 0 <= version <= VALUE_VERSION_MAX:
            raise CorruptRecordError(f"{self._what}: version {version}, known are 0 to {VALUE_VERSION_MAX}")
        self._flexible = version >= _FLEXIBLE
        return version

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self._damaged("a string is null")
        return text

    def nullable_string(self) -> str | None:
        length = self._unsigned_varint() - 1 if self._flexible else self.int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise self._damaged("a string is not UTF-8") from error

    def blob(self) -> bytes:
        return self._take(self.count())

    def count(self) -> int:
        return self._unsigned_varint() - 1 if self._flexible else self.int32()

    def tags(self) -> dict[int, bytes]:
        if not self._flexible:
            return {}
        return {
            self._unsigned_varint(): self._take(self._unsigned_varint())
            for _ in range(self._unsigned_varint())
        }

    def _unsigned_varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self._damaged("a varint has more than 5 bytes")

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise self._damaged(f"a field of {count} bytes does not fit into its {len(self._data)} bytes")
        taken = self._data[self._at : end]
        self._at = end
        return bytes(taken)

    def _damaged(self, why: str) -> CorruptRecordError:
        return CorruptRecordError(f"{self._what} is damaged at byte {self._at}: {why}")
