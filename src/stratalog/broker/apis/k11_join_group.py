"""JoinGroup: join or rejoin a classic group; the response is sent when all members have joined.

Version 0 has no rebalance timeout (the session timeout applies); from 4 on a dynamic member first gets an id with
MEMBER_ID_REQUIRED; 5 adds static members; 7 the protocol type, 8 the reason, 9 lets a leader skip the assignment.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import JoinRequest, Protocol, to_ms
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import wire_code

_ID_REQUIRED_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIP_FROM = 9


def _refuse(ctx: RequestContext, request: Any, error: BaseException) -> Any:
    return ctx.respond(error_code=wire_code(error), member_id=request.member_id)


@handles(ApiKey.JOIN_GROUP, versions=(0, 9), on_error=_refuse, waits=True)
async def join_group(ctx: RequestContext, request: Any) -> Any:
    instance_id = getattr(request, "group_instance_id", None)
    client_id = ctx.client_id or ""
    session_timeout_ms = to_ms(request.session_timeout)
    reply = await ctx.broker.groups.join(
        request.group_id,
        JoinRequest(
            member_id=request.member_id,
            new_member_id=ctx.broker.groups.new_member_id(client_id, instance_id),
            protocol_type=request.protocol_type,
            protocols=tuple(Protocol(offered.name, offered.metadata) for offered in request.protocols),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms if ctx.version == 0 else to_ms(request.rebalance_timeout),
            instance_id=instance_id,
            client_id=client_id,
            client_host=f"/{ctx.peer.client_host}",  # as Java prints an address without a name
            id_required=ctx.version >= _ID_REQUIRED_FROM,
            can_skip_assignment=ctx.version >= _SKIP_FROM,
            reason=getattr(request, "reason", None),
        ),
    )
    no_name = None if ctx.version >= _NULL_PROTOCOL_FROM else ""
    return ctx.respond(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=no_name if reply.protocol_name is None else reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            ctx.make(
                "JoinGroupResponseMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ],
    )
