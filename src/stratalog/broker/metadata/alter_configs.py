"""Change configurations of the resources in AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from stratalog.broker.metadata.config_changes import check_broker_configs, check_topic_configs, node_in_name
from stratalog.broker.topics import check_topic_name
from stratalog.config import BrokerConfig, ClientMetricsConfig, check_group_configs
from stratalog.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext
    from stratalog.broker.services import BrokerServices

#: Resource types of the configuration APIs.
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

#: Current settings -> new settings.
Make = Callable[[Mapping[str, str]], dict[str, str]]

#: Held while settings are read and replaced.
_altering = threading.Lock()


async def answer_each(ctx: RequestContext, request: Any, alter_one: Callable[[RequestContext, Any, bool], None]) -> Any:
    """Return the response to a request of either API.

    Calls `alter_one(ctx, resource, validate_only)` for each resource on a worker thread; an exception becomes that
    resource's error. A resource that appears twice is refused.
    """
    times = await ctx.beside(_times, request)
    responses = []
    for resource in request.resources:
        error_code, message = 0, None
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            await ctx.broker.workers.run(alter_one, ctx, resource, request.validate_only)
        except KafkaError as error:
            error_code, message = error.code, str(error) or None
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


def _times(request: Any) -> Counter[tuple[int, str]]:
    return Counter((resource.resource_type, resource.resource_name) for resource in request.resources)


def alter(
    broker: BrokerServices,
    resource_type: int,
    name: str,
    make: Make,
    *,
    validate_only: bool,
) -> None:
    """Change the configs of one resource; they are durable and in force on return. May block on disk.

    After an exception nothing has changed.
    """
    check_resource_type(resource_type)
    with _altering:
        if resource_type == TOPIC:
            _alter_topic(broker, name, make, validate_only)
        elif resource_type == BROKER:
            _alter_broker(broker, name, make, validate_only)
        else:
            _alter_resource(broker, resource_type, name, make, validate_only)


def check_resource_type(resource_type: int) -> None:
    """Raise InvalidRequestError for a type that `alter` does not support."""
    if resource_type not in (TOPIC, BROKER, *_RESOURCES):
        raise InvalidRequestError(f"Unknown resource type {resource_type}")


def _alter_topic(broker: BrokerServices, name: str, make: Make, validate_only: bool) -> None:
    topic = broker.metadata.topic(name)
    before: Mapping[str, str] = {} if topic is None else topic.configs
    after = make(before)
    if not name:
        raise InvalidRequestError("Default topic resources are not allowed.")
    check_topic_name(name)
    broker.topics.new_config(after)
    check_topic_configs(name, before, after, broker.config)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
    if not validate_only:
        broker.topics.set_configs(name, after)


def _alter_broker(broker: BrokerServices, name: str, make: Make, validate_only: bool) -> None:
    node_id = broker_of(name, broker.node_id)
    after = make(broker.metadata.broker_configs(node_id))
    settings, for_all = broker.settings, node_id is None
    resulting = partial(settings.resulting, node_id, after)
    check_broker_configs(after, settings.static, current=broker.config, resulting=resulting, for_all=for_all)
    settings.set(node_id, after, broker.topics, validate_only=validate_only)


def _alter_resource(broker: BrokerServices, resource_type: int, name: str, make: Make, validate_only: bool) -> None:
    after = make(broker.metadata.resource_configs(resource_type, name))
    _RESOURCES[resource_type](name, after, broker.config)
    if not validate_only:
        broker.store.set_resource_configs(resource_type, name, after)


def _check_group(name: str, configs: Mapping[str, str], config: BrokerConfig) -> None:
    if not name:
        raise InvalidRequestError("Default group resources are not allowed.")
    check_group_configs(configs, config)


def _check_client_metrics(name: str, configs: Mapping[str, str], _config: BrokerConfig) -> None:
    if not name:
        raise InvalidRequestError("Subscription name can't be empty")
    ClientMetricsConfig.from_properties(configs)


#: Checks of the configs of other resource types.
_RESOURCES: Mapping[int, Callable[[str, Mapping[str, str], BrokerConfig], None]] = {
    GROUP: _check_group,
    CLIENT_METRICS: _check_client_metrics,
}


def broker_of(name: str, node_id: int) -> int | None:
    """Return the broker id in a resource's name, or None for all. InvalidRequestError unless it is this broker."""
    if not name:
        return None
    wanted = node_in_name(name)
    if wanted != node_id:
        raise InvalidRequestError(f"Unexpected broker id, expected {node_id}, but received {name}")
    return wanted
