"""AlterConfigs: replace all settings of topics or brokers. Current clients use IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

from stratalog.broker.metadata import Operation, alter, answer_each, parse_changes
from stratalog.broker.server import ApiKey, RequestContext, handles


@handles(ApiKey.ALTER_CONFIGS, versions=(0, 2))
async def alter_configs(ctx: RequestContext, request: Any) -> Any:
    return await answer_each(ctx, request, _alter)


def _alter(ctx: RequestContext, resource: Any, validate_only: bool) -> None:
    changes = parse_changes((config.name, Operation.SET, config.value) for config in resource.configs)
    wanted = {change.name: change.value or "" for change in changes}

    alter(
        ctx.broker,
        resource.resource_type,
        resource.resource_name,
        lambda _before: wanted,
        validate_only=validate_only,
    )
