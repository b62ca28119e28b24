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

from stratalog.broker.groups.member_records import NAMES, NUMBERS, PARTITIONS, TARGET_EPOCH, GroupRecords
from stratalog.broker.groups.modern import GroupEpoch
from stratalog.broker.groups.share.values import (
    ShareAssignment,
    ShareChangeKind,
    ShareGroupChange,
    ShareSubscription,
    StatePartitions,
    StateTopic,
)
from stratalog.wire import (
    NULLABLE_STRING,
    NUM8,
    NUM32,
    NUM64,
    STRING,
    UUID_BYTES,
    ended,
    mapping,
    struct,
)

_SUBSCRIPTION = struct(ShareSubscription, rack_id=NULLABLE_STRING, client_id=STRING, client_host=STRING, topics=NAMES)
_ASSIGNMENT = struct(ShareAssignment, epoch=NUM32, previous_epoch=NUM32, state=NUM8, assigned=PARTITIONS)
_STATE_TOPICS = mapping(UUID_BYTES, struct(StateTopic, name=STRING, partitions=NUMBERS))
_STATE_PARTITIONS = struct(
    StatePartitions,
    initializing=_STATE_TOPICS,
    initialized=_STATE_TOPICS,
    deleting=mapping(UUID_BYTES, ended(STRING)),
)
_RECORDS = GroupRecords(
    "share",
    ShareGroupChange,
    forms={
        ShareChangeKind.MEMBER: _SUBSCRIPTION,
        ShareChangeKind.GROUP: struct(GroupEpoch, epoch=NUM32, metadata_hash=NUM64),
        ShareChangeKind.TARGET_EPOCH: TARGET_EPOCH,
        ShareChangeKind.TARGET: ended(PARTITIONS),
        ShareChangeKind.CURRENT: _ASSIGNMENT,
        ShareChangeKind.STATE_PARTITIONS: _STATE_PARTITIONS,
    },
    named={ShareChangeKind.MEMBER, ShareChangeKind.TARGET, ShareChangeKind.CURRENT},
)
encode_share_change = _RECORDS.encode
decode_share_change = _RECORDS.decode
