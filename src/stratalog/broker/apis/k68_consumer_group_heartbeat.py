"""ConsumerGroupHeartbeat (68): a member of a group of the new protocol (KIP-848) joins, stays or leaves.

v0 and v1. v1: subscriptions by a regular expression, and member ids that clients make up themselves. While the feature
`group.version` is 0: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.broker.access import AclOperation, ResourceType
from stratalog.broker.groups import check_consumer_protocol, to_ms
from stratalog.broker.groups.consumer import MemberHeartbeat, check_heartbeat
from stratalog.broker.server import ApiKey, RequestContext, handles

if TYPE_CHECKING:
    from stratalog.broker.groups.consumer import HeartbeatReply, TopicFilter


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1))
async def consumer_group_heartbeat(ctx: RequestContext, request: Any) -> Any:
    check_consumer_protocol(ctx.broker)
    heartbeat = MemberHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_ms(request.rebalance_timeout),
        topics=request.subscribed_topic_names,
        regex=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=None
        if request.topic_partitions is None
        else {each.topic_id: each.partitions for each in request.topic_partitions if each.topic_id is not None},
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.peer.client_host}",  # as Java prints an address without a name
    )
    groups = ctx.broker.groups
    check_heartbeat(request.group_id, heartbeat, ctx.version, groups.consumers.assignors)
    return _answer(ctx, await groups.consumer_heartbeat(request.group_id, heartbeat, _may_see(ctx)))


def _may_see(ctx: RequestContext) -> TopicFilter | None:
    """Return what tells the topics that a regular expression of the client may find."""
    access = ctx.broker.access
    if access is None:
        return None
    asked = (ctx.peer, ctx.key, AclOperation.DESCRIBE, ResourceType.TOPIC)
    return lambda names: access.allowed_names(*asked, names, log_denied=False)


def _answer(ctx: RequestContext, reply: HeartbeatReply) -> Any:
    assignment = None
    if reply.assigned is not None:
        parts = [
            ctx.make("TopicPartitions", topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in reply.assigned.items()
        ]
        assignment = ctx.make("Assignment", topic_partitions=parts)
    return ctx.respond(
        error_code=0,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval=reply.interval_ms,
        assignment=assignment,
    )
