"""Heartbeat: a member of a classic group is alive; REBALANCE_IN_PROGRESS asks it to join again.

Version 3 adds the group instance id. While the group is still read back at a start, every heartbeat is taken for good.
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
