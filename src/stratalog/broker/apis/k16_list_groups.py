"""ListGroups: all groups, optionally only those in some states (version 4) or of some types (5).

While any group is loading: COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from stratalog.broker.groups import streams
from stratalog.broker.server import ApiKey, RequestContext, handles


def _filter_name(state: Enum) -> str:
    """Return the name of a state in filters; Kafka's has an underscore in one of them."""
    return "not_ready" if state is streams.StreamsGroupState.NOT_READY else str(state.value).lower()


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
                group_type=group.type_name,
            )
            for group in ctx.broker.groups.listed_groups()
            if (not states or _filter_name(group.state) in states) and (not types or group.type_name in types)
        ],
    )
