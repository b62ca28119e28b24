"""DescribeClientQuotas (48): quotas of users, client ids and addresses that match a filter. v0 and v1."""

from __future__ import annotations

from typing import Any

from stratalog.broker.quotas import QuotaFilter
from stratalog.broker.server import ApiKey, RequestContext, handles


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1))
async def describe_client_quotas(ctx: RequestContext, request: Any) -> Any:
    components = [(each.entity_type, int(each.match_type), each.match) for each in request.components]
    chosen = QuotaFilter.of(components, strict=request.strict)
    asked_nothing = chosen.strict and not components
    found = () if asked_nothing else list(ctx.broker.quotas.entries.items())  # they may change in the turns of others
    entries = [
        ctx.make(
            "EntryData",
            entity=[ctx.make("EntityData", entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ctx.make("ValueData", key=key, value=value) for key, value in values.items()],
        )
        async for entity, values in ctx.in_turns(found)
        if chosen.matches(entity)
    ]
    return ctx.respond(error_code=0, error_message="", entries=entries)
