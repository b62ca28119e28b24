"""ListGroups: all groups, by choice only those in some states (version 4) or of some types (5).

While any group is still read back at a start: COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import AnyGroup
from stratalog.broker.groups.consumer import ConsumerGroup
from stratalog.broker.server import ApiKey, RequestContext, handles


def _type(group: AnyGroup) -> str:
    return "consumer" if isinstance(group, ConsumerGroup) else "classic"


@handles(ApiKey.LIST_GROUPS, versions=(0, 5))
def list_groups(ctx: RequestContext, request: Any) -> Any:
    ctx.broker.groups.loading.check_all()
    states = {state.strip().lower() for state in getattr(request, "states_filter", ())}
    types = {type_.strip().lower() for type_ in getattr(request, "types_filter", ())}
    return ctx.respond(
        error_code=0,
        groups=[
            ctx.make(
                "ListedGroup",
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=_type(group),
            )
            for group in ctx.broker.groups.all_groups()
            if (not states or group.state.value.lower() in states) and (not types or _type(group) in types)
        ],
    )
