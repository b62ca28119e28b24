"""Heartbeat: a member of a classic group is alive; REBALANCE_IN_PROGRESS asks it to rejoin.

Version 3 adds the group instance id. While the group is loading, every heartbeat succeeds.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import CoordinatorLoadInProgressError


@handles(ApiKey.HEARTBEAT, versions=(0, 4))
def heartbeat(ctx: RequestContext, request: Any) -> Any:
    with suppress(CoordinatorLoadInProgressError):
        ctx.broker.groups.heartbeat(
            request.group_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id,
        )
    return ctx.respond(error_code=0)
