"""OffsetCommit: store how far a group has read.

Version 2 is the first that stores in `__consumer_offsets`; 2 to 4 may ask for a retention of their own; 6 adds the
leader epoch, 7 the group instance id; from 9 on an unknown group is GROUP_ID_NOT_FOUND (before: ILLEGAL_GENERATION); 10
names topics by id. A group without members may be committed to by anyone, with generation -1 and no member id.
"""

from __future__ import annotations

import struct
from typing import Any

from stratalog.broker.groups import CommittedOffset, TopicPartition, requested_topic, to_ms
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    UnknownTopicOrPartitionError,
    wire_code,
)

_GROUP_NOT_FOUND_FROM = 9
_TOPIC_IDS_FROM = 10
_FLEXIBLE_FROM = 8
#: A partition of the response: its index, the error code.
_PARTITION = struct.Struct(">ih")


@handles(ApiKey.OFFSET_COMMIT, versions=(2, 10))
async def offset_commit(ctx: RequestContext, request: Any) -> Any:
    codes: dict[tuple[int, int], int] = {}
    places: dict[TopicPartition, tuple[int, int]] = {}
    commits: dict[TopicPartition, CommittedOffset] = {}
    now_ms = ctx.broker.clock.now_ms()
    expiry = _expiry(request, now_ms)
    for at, requested in enumerate(request.topics):
        topic, error_code = requested_topic(ctx.broker, requested, by_id=ctx.version >= _TOPIC_IDS_FROM)
        for number, partition in enumerate(requested.partitions):
            if topic is None:
                codes[at, number] = error_code
            elif not 0 <= partition.partition_index < topic.partition_count:
                codes[at, number] = UnknownTopicOrPartitionError.code
            else:
                key = TopicPartition(topic.name, partition.partition_index)
                places[key] = (at, number)
                commits[key] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_metadata or "",
                    now_ms,
                    getattr(partition, "committed_leader_epoch", -1),
                    expiry,
                    topic.topic_id,
                )
    if commits:
        missing = GroupIdNotFoundError if ctx.version >= _GROUP_NOT_FOUND_FROM else IllegalGenerationError
        try:
            stored = await ctx.broker.groups.commit(
                request.group_id,
                request.member_id,
                getattr(request, "group_instance_id", None),
                request.generation_id_or_member_epoch,
                commits,
                missing_group=missing,
                version=ctx.version,
            )
        except KafkaError as error:
            stored = dict.fromkeys(commits, wire_code(error))
        codes.update({places[key]: code for key, code in stored.items()})
    return _response(ctx, request, codes)


def _expiry(request: Any, now_ms: int) -> int | None:
    retention = getattr(request, "retention_time", None)
    retention_ms = -1 if retention is None else to_ms(retention)
    return None if retention_ms == -1 else now_ms + retention_ms


def _response(ctx: RequestContext, request: Any, codes: dict[tuple[int, int], int]) -> Any:
    partition_end = b"\0" if ctx.version >= _FLEXIBLE_FROM else b""  # no tagged fields
    topics = []
    for at, topic in enumerate(request.topics):
        answer = ctx.make(
            "OffsetCommitResponseTopic",
            name=getattr(topic, "name", None),
            topic_id=getattr(topic, "topic_id", None),
        )
        partitions = [
            _PARTITION.pack(partition.partition_index, codes[at, number]) + partition_end
            for number, partition in enumerate(topic.partitions)
        ]
        topics.append(ctx.parts(answer, partitions))
    return ctx.respond_encoded(ctx.parts(ctx.respond(), topics))
