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

from stratalog.broker.groups.consumer.values import (
    ChangeKind,
    ClassicFacts,
    CurrentAssignment,
    GroupChange,
    MemberState,
    MemberSubscription,
    OldPartitionMetadata,
    ResolvedRegex,
)
from stratalog.broker.groups.member_records import (
    NAMES,
    PARTITIONS,
    TARGET_EPOCH,
    GroupRecords,
    put_epochs,
    read_epochs,
)
from stratalog.broker.groups.modern import GroupEpoch
from stratalog.broker.groups.values import Protocol
from stratalog.wire import (
    BLOB,
    INT8,
    INT32,
    NULLABLE_STRING,
    NUM32,
    NUM64,
    STRING,
    UUID_BYTES,
    FieldReader,
    Form,
    TaggedForm,
    array,
    ended,
    nullable,
    put_tags,
    struct,
)


def _put_old(out: bytearray, value: OldPartitionMetadata) -> None:
    raise AssertionError(f"only the tombstone of this record is written, not {value} behind {len(out)} bytes")


def _put_current(out: bytearray, current: CurrentAssignment) -> None:
    out += INT32.pack(current.epoch) + INT32.pack(current.previous_epoch) + INT8.pack(current.state)
    put_epochs(out, UUID_BYTES, current.assigned)
    put_epochs(out, UUID_BYTES, current.revoking)
    put_tags(out, {})


def _read_current(reader: FieldReader) -> CurrentAssignment:
    epoch, previous = reader.int32(), reader.int32()
    state = MemberState(reader.int8())
    assigned, revoking = [read_epochs(reader, UUID_BYTES, max(epoch, 0)) for _ in ("assigned", "revoking")]
    reader.tags()
    return CurrentAssignment(epoch, previous, state, assigned, revoking)


_CLASSIC = struct(
    ClassicFacts,
    session_timeout_ms=NUM32,
    protocols=array(struct(Protocol, name=STRING, metadata=BLOB)),
)
_SUBSCRIPTION = struct(
    MemberSubscription,
    instance_id=NULLABLE_STRING,
    rack_id=NULLABLE_STRING,
    client_id=STRING,
    client_host=STRING,
    topics=NAMES,
    regex=NULLABLE_STRING,
    rebalance_timeout_ms=NUM32,
    assignor=NULLABLE_STRING,
    classic=TaggedForm(0, nullable(_CLASSIC, null=0), None, always=True),
)
_RECORDS = GroupRecords(
    "consumer",
    GroupChange,
    forms={
        ChangeKind.GROUP: struct(GroupEpoch, epoch=NUM32, metadata_hash=TaggedForm(0, NUM64, 0)),
        ChangeKind.PARTITION_METADATA: Form(_put_old, lambda _: OldPartitionMetadata()),
        ChangeKind.MEMBER: _SUBSCRIPTION,
        ChangeKind.TARGET_EPOCH: TARGET_EPOCH,
        ChangeKind.TARGET: ended(PARTITIONS),
        ChangeKind.CURRENT: Form(_put_current, _read_current),
        ChangeKind.REGEX: struct(ResolvedRegex, topics=NAMES, version=NUM64, timestamp_ms=NUM64),
    },
    named={ChangeKind.MEMBER, ChangeKind.TARGET, ChangeKind.CURRENT, ChangeKind.REGEX},
)
encode_change = _RECORDS.encode
decode_change = _RECORDS.decode
