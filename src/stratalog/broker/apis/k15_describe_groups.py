"""DescribeGroups: state and members of classic groups; metadata and assignments only while the group is stable.

An unknown group is described as Dead; from version 6 on it is GROUP_ID_NOT_FOUND with a message. Version 3 adds
authorized operations, 4 the group instance id.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import GROUP_OPERATIONS, OPERATIONS_UNKNOWN, ClassicGroup, GroupState
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import GroupIdNotFoundError, KafkaError

_NOT_FOUND_FROM = 6


@handles(ApiKey.DESCRIBE_GROUPS, versions=(0, 6))
async def describe_groups(ctx: RequestContext, request: Any) -> Any:
    asked = getattr(request, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if asked else OPERATIONS_UNKNOWN
    return ctx.respond(groups=[_describe(ctx, group_id, operations) async for group_id in ctx.in_turns(request.groups)])


def _describe(ctx: RequestContext, group_id: str, operations: int) -> Any:
    try:
        group = ctx.broker.groups.described_as(group_id, ClassicGroup)
    except GroupIdNotFoundError as error:
        found = ctx.version < _NOT_FOUND_FROM
        return ctx.make(
            "DescribedGroup",
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            error_code=0 if found else error.code,
            error_message=None if found else str(error),
            authorized_operations=operations if found else OPERATIONS_UNKNOWN,
        )
    except KafkaError as error:
        return ctx.make(
            "DescribedGroup",
            group_id=group_id,
            error_code=error.code,
            error_message=str(error),
            authorized_operations=OPERATIONS_UNKNOWN,
        )
    return ctx.make(
        "DescribedGroup",
        error_code=0,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is GroupState.STABLE else "",
        members=_members(ctx, group),
        authorized_operations=operations,
    )


def _members(ctx: RequestContext, group: ClassicGroup) -> list[Any]:
    stable = group.state is GroupState.STABLE
    return [
        ctx.make(
            "DescribedGroupMember",
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members
    ]
