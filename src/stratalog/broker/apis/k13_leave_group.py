"""LeaveGroup: members leave, so that others need not wait for their sessions to expire.

Up to version 2 one member, whose error is that of the response; from 3 on several, also by group instance id alone (an
administrator removing static members); 5 adds a reason.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import LeavingMember, LeftMember
from stratalog.broker.server import ApiKey, RequestContext, handles

_BATCHED_FROM = 3


@handles(ApiKey.LEAVE_GROUP, versions=(0, 5))
async def leave_group(ctx: RequestContext, request: Any) -> Any:
    groups = ctx.broker.groups
    if ctx.version < _BATCHED_FROM:
        (left,) = groups.leave(request.group_id, [LeavingMember(request.member_id)])
        await groups.log.settled(request.group_id)
        return ctx.respond(error_code=left.error)
    members = await ctx.beside(_leaving, request)
    all_left = groups.leave(request.group_id, members)  # in one step: the group rebalances once
    await groups.log.settled(request.group_id)
    return await ctx.beside(_answer, ctx, all_left)


def _leaving(request: Any) -> list[LeavingMember]:
    return [
        LeavingMember(member.member_id, member.group_instance_id, getattr(member, "reason", None))
        for member in request.members
    ]


def _answer(ctx: RequestContext, all_left: list[LeftMember]) -> Any:
    return ctx.respond(
        error_code=0,
        members=[
            ctx.make(
                "MemberResponse",
                member_id=left.member_id,
                group_instance_id=left.instance_id,
                error_code=left.error,
            )
            for left in all_left
        ],
    )
