"""Heartbeat: a member of a classic group is alive; REBALANCE_IN_PROGRESS asks it to join again.

Version 3 adds the group instance id.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles


@handles(ApiKey.HEARTBEAT, versions=(0, 4))
def heartbeat(ctx: RequestContext, request: Any) -> Any:
    ctx.broker.groups.heartbeat(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id,
    )
    return ctx.respond(error_code=0)
