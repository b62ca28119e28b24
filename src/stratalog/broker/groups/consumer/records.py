"""Records of consumer protocol groups in `__consumer_offsets`, byte for byte as Apache Kafka writes them.

All integers are big-endian. Keys are the int16 of their schema and STRINGs (int16 length, UTF-8 bytes); values are the
int16 version 0 and flexible fields (KIP-482): an unsigned varint of a length plus one, tagged fields at the end.

    key 3   group                  value: epoch int32, tag 0: hash of the topics int64 (left out when 0)
    key 4   group                  value: of Kafka 4.0, not read; only its tombstone is written
    key 5   group, member id       value: instance id, rack id, client id, client host, [topic names], regex,
                                   rebalance timeout int32, assignor, tag 0: 0, or for a classic member: an unsigned
                                   varint 1, session timeout int32, [protocol name, metadata BYTES, no tags], no tags
    key 6   group                  value: epoch int32, tag 0: timestamp int64 (left out when 0)
    key 7   group, member id       value: [topic id 16 bytes, [partition int32], no tags]
    key 8   group, member id       value: epoch int32, previous epoch int32, state int8, assigned, to be revoked: each
                                   [topic id, [partition int32], tag 0: [epoch int32 of each partition]]
    key 16  group, regex           value: [topic names], version of the metadata int64, timestamp int64

Topic names are sorted. Topics and partitions of assignments have the order of the given maps.

Source: the schemas ConsumerGroup*Key and ConsumerGroup*Value of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from stratalog.broker.coordinator_log import KeyValue
from stratalog.broker.groups.consumer.values import (
    ChangeKind,
    ChangeValue,
    ClassicFacts,
    CurrentAssignment,
    GroupChange,
    MemberState,
    MemberSubscription,
    OldPartitionMetadata,
    PartitionEpochs,
    ResolvedRegex,
)
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
    tag_reader,
    tagged_number,
)
from stratalog.broker.groups.modern import GroupEpoch, Target, TargetEpoch
from stratalog.broker.groups.values import Protocol
from stratalog.broker.record_fields import INT8, INT16, INT32, INT64, FieldReader, put_count, put_string, put_tags

_NAMED = frozenset({ChangeKind.MEMBER, ChangeKind.TARGET, ChangeKind.CURRENT, ChangeKind.REGEX})
_WHAT = "consumer group record in __consumer_offsets"
_KINDS = {kind.value: kind for kind in ChangeKind}


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_change(group_id: str, change: GroupChange) -> KeyValue:
    """Return key and value of the record."""
    key = encode_key(change.kind, group_id, change.name if change.kind in _NAMED else None)
    return key, None if change.value is None else _encode_value(change.value)


def _encode_value(value: ChangeValue) -> bytes:
    out = bytearray(INT16.pack(0))
    if isinstance(value, GroupEpoch):
        out += INT32.pack(value.epoch)
        put_tags(out, _number_tag(value.metadata_hash))
    elif isinstance(value, TargetEpoch):
        out += INT32.pack(value.epoch)
        put_tags(out, _number_tag(value.timestamp_ms))
    elif isinstance(value, MemberSubscription):
        _put_subscription(out, value)
    elif isinstance(value, CurrentAssignment):
        out += INT32.pack(value.epoch) + INT32.pack(value.previous_epoch) + INT8.pack(value.state)
        _put_epochs(out, value.assigned)
        _put_epochs(out, value.revoking)
        put_tags(out, NO_TAGS)
    elif isinstance(value, ResolvedRegex):
        put_names(out, value.topics)
        out += INT64.pack(value.version) + INT64.pack(value.timestamp_ms)
        put_tags(out, NO_TAGS)
    elif isinstance(value, OldPartitionMetadata):
        raise AssertionError("only the tombstone of this record is written")
    else:
        put_target(out, value)
        put_tags(out, NO_TAGS)
    return bytes(out)


def _number_tag(number: int) -> Mapping[int, bytes]:
    return {0: INT64.pack(number)} if number else NO_TAGS


def _put_epochs(out: bytearray, assigned: PartitionEpochs) -> None:
    put_count(out, len(assigned), flexible=True)
    for topic_id, partitions in assigned.items():
        out += topic_id.bytes
        put_numbers(out, partitions.keys())
        epochs = bytearray()
        put_numbers(epochs, partitions.values())
        put_tags(out, {0: bytes(epochs)} if partitions else NO_TAGS)


def _put_subscription(out: bytearray, said: MemberSubscription) -> None:
    for text in (said.instance_id, said.rack_id, said.client_id, said.client_host):
        put_string(out, text, flexible=True)
    put_names(out, said.topics)
    put_string(out, said.regex, flexible=True)
    out += INT32.pack(said.rebalance_timeout_ms)
    put_string(out, said.assignor, flexible=True)
    put_tags(out, {0: b"\0" if said.classic is None else _classic_facts(said.classic)})


def _classic_facts(facts: ClassicFacts) -> bytes:
    out = bytearray(b"\x01" + INT32.pack(facts.session_timeout_ms))
    put_count(out, len(facts.protocols), flexible=True)
    for protocol in facts.protocols:
        put_string(out, protocol.name, flexible=True)
        put_count(out, len(protocol.metadata), flexible=True)
        out += protocol.metadata
        put_tags(out, NO_TAGS)
    put_tags(out, NO_TAGS)
    return bytes(out)


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_change(key: bytes, value: bytes | None) -> tuple[str, GroupChange] | None:
    """Return the group and its change, or None for another kind of record. CorruptRecordError for invalid data."""
    found = decode_key(key, _KINDS, _NAMED, _WHAT)
    if found is None:
        return None
    kind, group_id, name = found
    return group_id, GroupChange(kind, name, None if value is None else _decode_value(kind, value))


def _decode_value(kind: ChangeKind, data: bytes) -> ChangeValue:
    if kind is ChangeKind.PARTITION_METADATA:
        return OldPartitionMetadata()
    return _DECODERS[kind](flexible_reader(data, _WHAT))


def _group_epoch(reader: FieldReader) -> GroupEpoch:
    return GroupEpoch(reader.int32(), _number(reader))


def _target_epoch(reader: FieldReader) -> TargetEpoch:
    return TargetEpoch(reader.int32(), _number(reader))


def _number(reader: FieldReader) -> int:
    return tagged_number(reader.tags(), 0, INT64, 0, _WHAT)


def _subscription(reader: FieldReader) -> MemberSubscription:
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics, regex = read_names(reader), reader.nullable_string()
    timeout_ms, assignor = reader.int32(), reader.nullable_string()
    facts = reader.tags().get(0)
    classic = None if facts is None or facts[:1] == b"\0" else _decode_classic_facts(facts)
    return MemberSubscription(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        regex=regex,
        rebalance_timeout_ms=timeout_ms,
        assignor=assignor,
        classic=classic,
    )


def _decode_classic_facts(data: bytes) -> ClassicFacts:
    reader = tag_reader(data[1:], _WHAT)
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.count()):
        protocols.append(Protocol(reader.string(), reader.blob()))
        reader.tags()
    reader.tags()
    return ClassicFacts(session_timeout_ms, tuple(protocols))


def _target(reader: FieldReader) -> Target:
    target = read_target(reader)
    reader.tags()
    return target


def _current(reader: FieldReader) -> CurrentAssignment:
    epoch, previous = reader.int32(), reader.int32()
    state = MemberState.of_record(reader.int8())
    assigned, revoking = _epochs(reader, epoch), _epochs(reader, epoch)
    reader.tags()
    return CurrentAssignment(epoch, previous, state, assigned, revoking)


def _epochs(reader: FieldReader, member_epoch: int) -> PartitionEpochs:
    """Read partitions with their epochs; Kafka before 4.3 wrote none, so the member's epoch applies."""
    found: dict[UUID, dict[int, int]] = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        partitions = read_numbers(reader)
        epochs = _tagged_numbers(reader.tags().get(0))
        if epochs is None or len(epochs) != len(partitions):
            epochs = (max(member_epoch, 0),) * len(partitions)
        found[topic_id] = dict(zip(partitions, epochs, strict=True))
    return found


def _tagged_numbers(data: bytes | None) -> tuple[int, ...] | None:
    if data is None or data[:1] == b"\0":
        return None
    return read_numbers(tag_reader(data, _WHAT))


def _regex(reader: FieldReader) -> ResolvedRegex:
    resolved = ResolvedRegex(read_names(reader), reader.int64(), reader.int64())
    reader.tags()
    return resolved


_DECODERS: Mapping[ChangeKind, Callable[[FieldReader], ChangeValue]] = {
    ChangeKind.GROUP: _group_epoch,
    ChangeKind.MEMBER: _subscription,
    ChangeKind.TARGET_EPOCH: _target_epoch,
    ChangeKind.TARGET: _target,
    ChangeKind.CURRENT: _current,
    ChangeKind.REGEX: _regex,
}
