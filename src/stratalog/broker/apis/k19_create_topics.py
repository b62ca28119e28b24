"""CreateTopics: new topics, each for itself; `validate_only` says what would become of them.

Version 2 is the first that Kafka 4 speaks; 5 adds the configs of what was made to the response, 7 its id. Topics get
segments no smaller than the operator's minimums (KIP-760).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.broker.metadata.config_changes import check_topic_configs
from stratalog.broker.metadata.config_entries import BrokerLevels, topic_entries
from stratalog.broker.metadata.store import Topic
from stratalog.broker.metadata.topic_requests import Assignment, check_partition_total, new_topic_partitions
from stratalog.errors import InvalidConfigError, InvalidRequestError, KafkaError, UnknownServerError

_METADATA_TOPIC = "__cluster_metadata"
_REPLICAS = 1


@handles(ApiKey.CREATE_TOPICS, versions=(2, 7))
async def create_topics(ctx: RequestContext, request: Any) -> Any:
    times = Counter(topic.name for topic in request.topics)
    counts: dict[str, int] = {}
    errors: dict[str, KafkaError] = {}
    for topic in request.topics:
        try:
            counts[topic.name] = _checked_partitions(ctx, topic, times[topic.name])
        except KafkaError as error:
            errors[topic.name] = error
    try:
        check_partition_total(sum(counts.values()))
    except KafkaError as error:
        errors.update(dict.fromkeys(counts, error))
        counts.clear()
    return ctx.respond(
        topics=[
            _refused(ctx, name, errors[name])
            if name in errors
            else await _create(ctx, name, counts[name], _configs(requested), request.validate_only)
            for name, requested in {topic.name: topic for topic in request.topics}.items()
        ]
    )


def _checked_partitions(ctx: RequestContext, topic: Any, times: int) -> int:
    """The partitions that the topic is to have; raises what is wrong with the request for it."""
    if times > 1:
        raise InvalidRequestError("Duplicate topic name.")
    if topic.name == _METADATA_TOPIC:
        raise InvalidRequestError(f"Creation of internal topic {_METADATA_TOPIC} is prohibited.")
    configs = _configs(topic)
    broker = ctx.broker
    broker.topics.check_new(topic.name, 1, {})
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise InvalidConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
    broker.topics.new_config(configs)
    check_topic_configs(topic.name, {}, configs, broker.config)
    count = new_topic_partitions(
        topic.num_partitions,
        topic.replication_factor,
        [Assignment(part.partition_index, part.broker_ids) for part in topic.assignments],
        node_id=broker.node_id,
        defaults=(broker.config["num.partitions"], broker.config["default.replication.factor"]),
    )
    broker.topics.check_partition_count(topic.name, count)
    return count


def _configs(topic: Any) -> dict[str, str]:
    return {config.name: config.value for config in topic.configs if config.value is not None}


async def _create(
    ctx: RequestContext, name: str, partitions: int, configs: dict[str, str], validate_only: bool
) -> Any:
    created: Topic | None = None
    if not validate_only:
        try:
            created = await ctx.broker.run_blocking(ctx.broker.topics.create, name, partitions, configs)
        except KafkaError as error:
            return _refused(ctx, name, error)
    entries = sorted(topic_entries(configs, BrokerLevels.of(ctx.broker)), key=lambda entry: entry.name)
    return ctx.make(
        "CreatableTopicResult",
        name=name,
        topic_id=None if created is None else created.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=partitions,
        replication_factor=_REPLICAS,
        configs=[
            ctx.make(
                "CreatableTopicConfigs",
                name=entry.name,
                value=None if entry.is_sensitive else configs.get(entry.name, entry.value),
                read_only=entry.is_read_only,
                config_source=int(entry.source),
                is_sensitive=entry.is_sensitive,
            )
            for entry in entries
        ]
        if ctx.version >= 5
        else None,
    )


def _refused(ctx: RequestContext, name: str, error: KafkaError) -> Any:
    return ctx.make(
        "CreatableTopicResult",
        name=name,
        error_code=error.code,
        error_message=None if isinstance(error, UnknownServerError) else str(error),
        num_partitions=-1,
        replication_factor=-1,
        configs=(),
    )
