"""IncrementalAlterConfigs: set, delete, append to and subtract from single configs of topics and brokers.

Each resource is changed as a whole or not at all; what is changed is in force when the answer is sent. A broker named ""
stands for all of them. Segment settings of topics may not go below the operator's minimums (KIP-760).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.broker.metadata.alter_configs import TOPIC, alter
from stratalog.broker.metadata.config_changes import (
    Operation,
    changed_broker_configs,
    changed_topic_configs,
    parse_changes,
)
from stratalog.errors import InvalidRequestError, KafkaError


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1))
async def incremental_alter_configs(ctx: RequestContext, request: Any) -> Any:
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
    changes = parse_changes(
        (config.name, config.config_operation, config.value) for config in resource.configs
    )
    change = changed_topic_configs if resource.resource_type == TOPIC else changed_broker_configs

    def apply(before: Mapping[str, str]) -> dict[str, str]:
        return change(before, changes)

    alter(
        ctx.broker,
        resource.resource_type,
        resource.resource_name,
        apply,
        given=[each.name for each in changes if each.operation is not Operation.DELETE],
        validate_only=validate_only,
    )
