"""ShareGroupDescribe (77): state, epochs and members of share groups (KIP-932).

v1. A group of another type is GROUP_ID_NOT_FOUND. While the feature `share.version` is 0: UNSUPPORTED_VERSION for every
group.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.described_groups import described_assignment, described_group, refuse_groups, refused_group
from stratalog.broker.groups import GROUP_OPERATIONS, OPERATIONS_UNKNOWN, check_share_protocol, share
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidGroupIdError, KafkaError


@handles(ApiKey.SHARE_GROUP_DESCRIBE, versions=(1, 1), on_error=refuse_groups)
async def share_group_describe(ctx: RequestContext, request: Any) -> Any:
    check_share_protocol(ctx.broker)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else OPERATIONS_UNKNOWN
    return ctx.respond(
        groups=[_describe(ctx, group_id, operations) async for group_id in ctx.in_turns(request.group_ids)]
    )


def _describe(ctx: RequestContext, group_id: str, operations: int) -> Any:
    try:
        if not group_id:
            raise InvalidGroupIdError
        group = ctx.broker.groups.described_as(group_id, share.ShareGroup)
    except KafkaError as error:
        return refused_group(ctx, group_id, error.code, str(error) or None)
    return described_group(
        ctx,
        group,
        assignor_name=share.ASSIGNOR,
        members=[_member(ctx, member) for member in group.members.values()],
        authorized_operations=operations,
    )


def _member(ctx: RequestContext, member: share.ShareMember) -> Any:
    return ctx.make(
        "Member",
        member_id=member.member_id,
        rack_id=member.said.rack_id,
        member_epoch=member.epoch,
        client_id=member.said.client_id,
        client_host=member.said.client_host,
        subscribed_topic_names=sorted(member.said.topics),
        assignment=described_assignment(ctx, member.current.assigned),
    )
