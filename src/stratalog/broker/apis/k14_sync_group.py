"""SyncGroup: the leader of a classic group sends the assignments, and every member gets its own.

Version 3 adds the group instance id, 5 protocol type and name, which must be those of the group.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import SyncRequest
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InconsistentGroupProtocolError

_PROTOCOL_FROM = 5


@handles(ApiKey.SYNC_GROUP, versions=(0, 5), waits=True)
async def sync_group(ctx: RequestContext, request: Any) -> Any:
    protocol_type = getattr(request, "protocol_type", None)
    protocol_name = getattr(request, "protocol_name", None)
    if ctx.version >= _PROTOCOL_FROM and (protocol_type is None or protocol_name is None):
        raise InconsistentGroupProtocolError("protocol type and name are required from version 5 on")
    reply = await ctx.broker.groups.sync(
        request.group_id,
        SyncRequest(
            member_id=request.member_id,
            generation=request.generation_id,
            assignments=tuple((given.member_id, given.assignment) for given in request.assignments),
            instance_id=getattr(request, "group_instance_id", None),
            protocol_type=protocol_type,
            protocol_name=protocol_name,
        ),
    )
    return ctx.respond(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )
