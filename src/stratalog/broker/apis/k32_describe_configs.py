"""DescribeConfigs: the configuration of topics, groups and this broker, with the source of each value; loggers' levels.

Version 1 adds sources and synonyms, 3 types and documentation. A broker named "" means the dynamic settings of all.
Values of secrets and unknown keys are never returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from stratalog.broker.metadata import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    BrokerLevels,
    ConfigEntry,
    ConfigSource,
    Topic,
    TopicDescriber,
    broker_entries,
    client_metrics_entries,
    cluster_entries,
    group_entries,
    logger_entries,
)
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.topics import check_topic_name
from stratalog.errors import INVALID_REQUEST_MESSAGE, InvalidRequestError, KafkaError, UnknownTopicOrPartitionError
from stratalog.wire import write_message

#: How many usual elements of a request a resource is worth: its description takes some 40 us.
_WEIGHT = 8
#: Topics, brokers, loggers of brokers, client metrics, groups.
_KNOWN_TYPES = (2, 4, 8, 16, 32)


@handles(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4))
async def describe_configs(ctx: RequestContext, request: Any) -> Any:
    if await ctx.beside(_has_unknown_type, request):
        return await ctx.beside(_refused, ctx, request)
    levels = BrokerLevels.of(ctx.broker)
    documented = getattr(request, "include_documentation", False)

    def encode(entry: ConfigEntry, _: str | None = None) -> bytes:
        return write_message(_result(ctx, entry, synonyms=request.include_synonyms, documented=documented))

    topics = TopicDescriber(levels, encode)
    results = []
    codes: Counter[int] = Counter()
    async for resource in ctx.in_turns(request.resources, weight=_WEIGHT):
        type_, name = resource.resource_type, resource.resource_name
        only = set(resource.configuration_keys or ()) or None
        entries: Iterable[bytes] = ()
        error_code, message = 0, ""
        try:
            if type_ == TOPIC:
                entries = topics.encoded(_known_topic(ctx, name).configs, only).values()
            else:
                entries = [encode(entry) for entry in _other_entries(ctx, levels, type_, name, only)]
        except KafkaError as error:
            error_code, message = error.code, str(error)
        result = ctx.make(
            "DescribeConfigsResult",
            error_code=error_code,
            error_message=message,
            resource_type=type_,
            resource_name=name,
        )
        results.append(ctx.parts(result, list(entries)))
        codes[error_code] += 1
    return ctx.respond_encoded(ctx.parts(ctx.respond(), results), codes)


def _has_unknown_type(request: Any) -> bool:
    return any(resource.resource_type not in _KNOWN_TYPES for resource in request.resources)


def _refused(ctx: RequestContext, request: Any) -> Any:
    """Respond to an unknown resource type: Kafka refuses the whole request."""
    return ctx.respond(
        results=[
            ctx.make(
                "DescribeConfigsResult",
                error_code=InvalidRequestError.code,
                error_message=INVALID_REQUEST_MESSAGE,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=(),
            )
            for resource in request.resources
        ]
    )


def _known_topic(ctx: RequestContext, name: str) -> Topic:
    check_topic_name(name)
    topic = ctx.broker.metadata.topic(name)
    if topic is None:
        raise UnknownTopicOrPartitionError
    return topic


def _other_entries(
    ctx: RequestContext, levels: BrokerLevels, type_: int, name: str, only: Collection[str] | None
) -> list[ConfigEntry]:
    if type_ == GROUP:
        if not name:
            raise InvalidRequestError("Group name must not be empty")
        return group_entries(ctx.broker.metadata.resource_configs(GROUP, name), levels, only)
    if type_ == CLIENT_METRICS:
        if not name:
            raise InvalidRequestError("Client metrics subscription name must not be empty")
        return client_metrics_entries(ctx.broker.metadata.resource_configs(CLIENT_METRICS, name), only)
    if type_ not in (BROKER, BROKER_LOGGER):
        raise InvalidRequestError(f"Unsupported resource type: {type_}")
    if not name and type_ == BROKER_LOGGER:
        raise InvalidRequestError("Broker id must not be empty")
    if not name:
        return cluster_entries(levels, only)
    node_id = ctx.broker.node_id
    try:
        wanted = int(name)
    except ValueError:
        raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}") from None
    if wanted != node_id:
        others = "" if type_ == BROKER_LOGGER else " or empty string,"
        raise InvalidRequestError(f"Unexpected broker id, expected {node_id}{others} but received {name}")
    return logger_entries(only) if type_ == BROKER_LOGGER else broker_entries(levels, only)


def _result(ctx: RequestContext, entry: ConfigEntry, *, synonyms: bool, documented: bool) -> Any:
    return ctx.make(
        "DescribeConfigsResourceResult",
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=int(entry.source),
        is_sensitive=entry.is_sensitive,
        synonyms=[
            ctx.make("DescribeConfigsSynonym", name=same.name, value=same.value, source=int(same.source))
            for same in entry.synonyms
        ]
        if synonyms
        else (),
        config_type=entry.type,
        documentation=entry.documentation if documented or entry.source == ConfigSource.BROKER_LOGGER else None,
    )
