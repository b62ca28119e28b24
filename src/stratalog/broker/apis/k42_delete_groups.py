"""DeleteGroups: delete groups without members, with their commits and share states.

v0 to v3. v3 has room for messages; as in Kafka, they are null.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import KafkaError


@handles(ApiKey.DELETE_GROUPS, versions=(0, 3))
async def delete_groups(ctx: RequestContext, request: Any) -> Any:
    return ctx.respond(
        results=[
            ctx.make("DeletableGroupResult", group_id=group_id, error_code=await _delete(ctx, group_id))
            async for group_id in ctx.in_turns(dict.fromkeys(request.groups_names))
        ]
    )


async def _delete(ctx: RequestContext, group_id: str) -> int:
    try:
        await ctx.broker.groups.delete(group_id)
        await ctx.broker.groups.log.settled(group_id)
    except KafkaError as error:
        return error.code
    return 0
