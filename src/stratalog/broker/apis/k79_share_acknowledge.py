"""ShareAcknowledge (79): acknowledgements of a member of a share group (KIP-932), without a fetch.

v1 and v2. v2: renewal of locks. While the feature `share.version` is 0: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    LeaderHints,
    check_share_request,
    named_places,
    readable_topics,
    refuse_share_request,
    take_acknowledgements,
)
from stratalog.errors import InvalidShareSessionEpochError


@handles(ApiKey.SHARE_ACKNOWLEDGE, versions=(1, 2), on_error=refuse_share_request)
async def share_acknowledge(ctx: RequestContext, request: Any) -> Any:
    check_share_request(ctx, request)
    leader = ctx.broker.share_leader
    group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise InvalidShareSessionEpochError("A share session is opened by a fetch.")
    if epoch == FINAL_EPOCH:
        leader.sessions.get(group_id, member_id)
    else:
        leader.sessions.go_on(group_id, member_id, epoch)
    names = named_places(ctx, request)
    readable = readable_topics(ctx, {name for name in names.values() if name is not None})
    said = await take_acknowledgements(ctx, request, names, readable)
    if epoch == FINAL_EPOCH:
        await leader.close_session(group_id, member_id)
    topic_ids = dict.fromkeys(place.topic_id for place in said)
    hints = LeaderHints(ctx)
    responses = [
        ctx.make(
            "ShareAcknowledgeTopicResponse",
            topic_id=topic_id,
            partitions=[
                ctx.make(
                    "PartitionData",
                    partition_index=place.partition,
                    error_code=each.error_code,
                    error_message=each.message,
                    current_leader=hints.leader(names[place], place.partition, each.error_code),
                )
                for place, each in said.items()
                if place.topic_id == topic_id
            ],
        )
        for topic_id in topic_ids
    ]
    return ctx.respond(
        error_code=0,
        acquisition_lock_timeout=leader.settings(group_id)["share.record.lock.duration.ms"],
        responses=responses,
        node_endpoints=hints.nodes(),
    )
