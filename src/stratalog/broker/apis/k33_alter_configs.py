"""AlterConfigs: replace everything that is set on topics or brokers. Clients of today use IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.broker.metadata.alter_configs import alter
from stratalog.broker.metadata.config_changes import Operation, parse_changes
from stratalog.errors import InvalidRequestError, KafkaError


@handles(ApiKey.ALTER_CONFIGS, versions=(0, 2))
async def alter_configs(ctx: RequestContext, request: Any) -> Any:
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        error_code, message = 0, None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            await ctx.broker.run_blocking(_alter, ctx, resource, request.validate_only)
        except KafkaError as error:
            error_code, message = error.code, str(error)
        responses.append(
            ctx.make(
                "AlterConfigsResourceResponse",
                error_code=error_code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return ctx.respond(responses=responses)


def _alter(ctx: RequestContext, resource: Any, validate_only: bool) -> None:
    changes = parse_changes((config.name, Operation.SET, config.value) for config in resource.configs)
    wanted = {change.name: change.value or "" for change in changes}

    alter(
        ctx.broker,
        resource.resource_type,
        resource.resource_name,
        lambda _before: wanted,
        given=wanted,
        validate_only=validate_only,
    )
