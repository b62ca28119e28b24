"""IncrementalAlterConfigs: set, delete, append to and subtract from configs of topics, brokers and groups, and loggers.

Each resource is changed as a whole or not at all; changes are in force before the response is sent. A broker named ""
means all of them. Segment settings of topics may not be below the operator's minimums (KIP-760).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from stratalog.broker.metadata import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    Operation,
    alter,
    alter_loggers_of,
    answer_each,
    broker_of,
    changed_broker_configs,
    changed_resource_configs,
    changed_topic_configs,
    check_names_and_values,
    check_resource_type,
    meets_unknown_operation,
    parse_changes,
)
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, UnknownServerError

_OPERATIONS = frozenset(Operation)
_CHANGES = {TOPIC: changed_topic_configs, BROKER: changed_broker_configs}
#: Resource types that only Kafka's controller checks.
_OF_THE_CONTROLLER = (TOPIC, CLIENT_METRICS, GROUP)


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1))
async def incremental_alter_configs(ctx: RequestContext, request: Any) -> Any:
    fails = await ctx.beside(_fails, request)
    return await answer_each(ctx, request, _fail if fails else _alter)


def _fails(request: Any) -> bool:
    """Return whether Kafka's controller fails for one of the resources."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    return any(
        times[resource.resource_type, resource.resource_name] == 1 and _fails_in_the_controller(resource)
        for resource in request.resources
    )


def _fails_in_the_controller(resource: Any) -> bool:
    """Return whether Kafka's controller fails for the resource, and so for all of the request that reaches it."""
    if resource.resource_type not in _OF_THE_CONTROLLER:
        return False
    parts = _parts(resource)
    try:
        check_names_and_values(parts)
    except InvalidRequestError:
        return False  # the broker itself refuses it earlier
    return meets_unknown_operation(parts, of_topic=resource.resource_type == TOPIC)


def _fail(ctx: RequestContext, resource: Any, validate_only: bool) -> None:
    if resource.resource_type == BROKER_LOGGER:
        _alter(ctx, resource, validate_only)  # the controller never gets it
        return
    if resource.resource_type in _OF_THE_CONTROLLER:
        check_names_and_values(_parts(resource))
    else:
        _alter(ctx, resource, True)  # raises the broker's own errors
    raise UnknownServerError


def _parts(resource: Any) -> list[tuple[str, int, str | None]]:
    return [(config.name, config.config_operation, config.value) for config in resource.configs]


def _alter(ctx: RequestContext, resource: Any, validate_only: bool) -> None:
    parts = _parts(resource)
    check_names_and_values(parts)
    if resource.resource_type == BROKER_LOGGER:
        alter_loggers_of(resource.resource_name, ctx.broker.node_id, parts, validate_only=validate_only)
        return
    check_resource_type(resource.resource_type)
    if resource.resource_type == BROKER:
        broker_of(resource.resource_name, ctx.broker.node_id)
    else:  # an unknown operation that is still here stands behind one that is refused
        parts = [part for part in parts if part[1] in _OPERATIONS]
    changes = parse_changes(parts)
    change = _CHANGES.get(resource.resource_type, changed_resource_configs)

    def apply(before: Mapping[str, str]) -> dict[str, str]:
        return change(before, changes)

    alter(
        ctx.broker,
        resource.resource_type,
        resource.resource_name,
        apply,
        validate_only=validate_only,
    )
