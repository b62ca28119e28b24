"""OffsetCommit: store committed offsets of a group.

Version 2 is the first that stores in `__consumer_offsets`; 2 to 4 may set a retention; 6 adds the leader epoch, 7 the
group instance id; from 9 on an unknown group is GROUP_ID_NOT_FOUND (before: ILLEGAL_GENERATION); 10 has topic ids. Any
client may commit to a group without members, with generation -1 and no member id.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Container
from typing import Any

from stratalog.broker.groups import (
    CommittedOffset,
    PartPosition,
    RequestedCommits,
    TopicPartition,
    answered_topics,
    requested_topic,
    to_ms,
)
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
#: How many usual elements of a request an append to the log is worth.
_STORE_WEIGHT = 20
#: A partition of the response: its index, the error code.
_PARTITION = struct.Struct(">ih")


@handles(ApiKey.OFFSET_COMMIT, versions=(2, 10))
async def offset_commit(ctx: RequestContext, request: Any) -> Any:
    codes: dict[PartPosition, int] = {}
    unknown: set[int] = set()
    commits = RequestedCommits()
    now_ms = ctx.broker.clock.now_ms()
    expiry = _expiry(request, now_ms)
    async for at, requested in ctx.in_turns(enumerate(request.topics)):
        topic, error_code = requested_topic(ctx.broker, requested, by_id=ctx.version >= _TOPIC_IDS_FROM)
        if topic is None:
            unknown.add(at)
        async for number, partition in ctx.in_turns(enumerate(requested.partitions)):
            position = PartPosition(at, number)
            if topic is None:
                codes[position] = error_code
            elif not 0 <= partition.partition_index < topic.partition_count:
                codes[position] = UnknownTopicOrPartitionError.code
            else:
                commits.add(
                    position,
                    TopicPartition(topic.name, partition.partition_index),
                    CommittedOffset(
                        partition.committed_offset,
                        partition.committed_metadata or "",
                        now_ms,
                        getattr(partition, "committed_leader_epoch", -1),
                        expiry,
                        topic.topic_id,
                    ),
                )
    as_asked = not codes and not unknown
    missing = GroupIdNotFoundError if ctx.version >= _GROUP_NOT_FOUND_FROM else IllegalGenerationError
    async for number, turn in ctx.in_turns(enumerate(commits.turns), weight=_STORE_WEIGHT):
        try:
            stored = await ctx.broker.groups.commit(
                request.group_id,
                request.member_id,
                getattr(request, "group_instance_id", None),
                request.generation_id_or_member_epoch,
                turn,
                missing_group=missing,
                version=ctx.version,
            )
        except KafkaError as error:
            stored = dict.fromkeys(turn, wire_code(error))
            if as_asked:
                unknown.update(range(len(request.topics)))  # an error of the group applies to the whole request
        codes.update(commits.placed(number, stored))
    return await ctx.beside(_response, ctx, request, codes, unknown, as_asked)


def _expiry(request: Any, now_ms: int) -> int | None:
    retention = getattr(request, "retention_time", None)
    retention_ms = -1 if retention is None else to_ms(retention)
    return None if retention_ms == -1 else now_ms + retention_ms


def _response(
    ctx: RequestContext, request: Any, codes: dict[PartPosition, int], kept: Container[int], as_asked: bool
) -> Any:
    partition_end = b"\0" if ctx.version >= _FLEXIBLE_FROM else b""  # no tagged fields
    by_id = ctx.version >= _TOPIC_IDS_FROM
    encoded = [
        ctx.parts(
            ctx.make("OffsetCommitResponseTopic", name=key, topic_id=key),
            [
                _PARTITION.pack(partition.partition_index, codes[PartPosition(at, number)]) + partition_end
                for at, number, partition in entries
            ],
        )
        for key, entries in answered_topics(
            request.topics, lambda topic: topic.topic_id if by_id else topic.name, as_asked=as_asked, kept=kept
        )
    ]
    return ctx.respond_encoded(ctx.parts(ctx.respond(), encoded), Counter(codes.values()))
