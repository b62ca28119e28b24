"""DescribeConfigs: the configuration of topics and of this broker, with where each value comes from.

Version 1 adds sources and synonyms, 3 types and documentation. A broker named "" stands for what is set dynamically for all
of them. Values of secrets, and of keys that are not known, are never told.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.broker.metadata.alter_configs import BROKER, TOPIC
from stratalog.broker.metadata.config_entries import (
    BrokerLevels,
    ConfigEntry,
    broker_entries,
    cluster_entries,
    topic_entries,
)
from stratalog.broker.topics import check_topic_name
from stratalog.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError


@handles(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4))
def describe_configs(ctx: RequestContext, request: Any) -> Any:
    documented = getattr(request, "include_documentation", False)
    results = []
    for resource in request.resources:
        entries: list[ConfigEntry] = []
        error_code, message = 0, ""
        try:
            only = set(resource.configuration_keys or ()) or None
            entries = _entries(ctx, resource.resource_type, resource.resource_name, only)
        except KafkaError as error:
            error_code, message = error.code, str(error)
        results.append(
            ctx.make(
                "DescribeConfigsResult",
                error_code=error_code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    _result(ctx, entry, synonyms=request.include_synonyms, documented=documented)
                    for entry in entries
                ],
            )
        )
    return ctx.respond(results=results)


def _entries(ctx: RequestContext, type_: int, name: str, only: Collection[str] | None) -> list[ConfigEntry]:
    levels = BrokerLevels.of(ctx.broker)
    if type_ == TOPIC:
        check_topic_name(name)
        topic = ctx.broker.metadata.topic(name)
        if topic is None:
            raise UnknownTopicOrPartitionError
        return topic_entries(topic.configs, levels, only)
    if type_ != BROKER:
        raise InvalidRequestError(f"Unsupported resource type: {type_}")
    if not name:
        return cluster_entries(levels, only)
    node_id = ctx.broker.node_id
    try:
        wanted = int(name)
    except ValueError:
        raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}") from None
    if wanted != node_id:
        raise InvalidRequestError(
            f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
        )
    return broker_entries(levels, only)


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
        documentation=entry.documentation if documented else None,
    )
