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
    PartPosition,
    RequestedCommits,
    answered_topics,
    to_ms,
)
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    wire_code,
)

_GROUP_NOT_FOUND_FROM = 9
_TOPIC_IDS_FROM = 10
_FLEXIBLE_FROM = 8
#: A partition of the response: its index, the error code.
_PARTITION = struct.Struct(">ih")


@handles(ApiKey.OFFSET_COMMIT, versions=(2, 10))
async def offset_commit(ctx: RequestContext, request: Any) -> Any:
    by_id = ctx.version >= _TOPIC_IDS_FROM
    commits = await RequestedCommits.read(ctx, request.topics, by_id=by_id, retention_ms=_retention_ms(request))
    as_asked = not commits.has_refused
    kept: Container[int] = commits.unknown
    missing = GroupIdNotFoundError if ctx.version >= _GROUP_NOT_FOUND_FROM else IllegalGenerationError
    async for number, turn in commits.turns(ctx):
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
                kept = range(len(request.topics))  # an error of the group applies to the whole request
        commits.settle(number, stored)
    return await ctx.beside(_response, ctx, request, commits.codes, kept, as_asked)


def _retention_ms(request: Any) -> int | None:
    retention = getattr(request, "retention_time", None)
    retention_ms = -1 if retention is None else to_ms(retention)
    return None if retention_ms == -1 else retention_ms


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
