"""CreateTopics: create topics independently of each other, or check them with `validate_only`.

Version 2 is the first that Kafka 4 supports; 5 adds the configs of the new topic to the response, 7 its id. Segments
may not be smaller than the operator's minimums (KIP-760).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from stratalog.broker.metadata import (
    UNSET,
    Assignment,
    BrokerLevels,
    ConfigEntry,
    Topic,
    TopicDescriber,
    check_partition_total,
    check_topic_configs,
    new_topic_partitions,
)
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidConfigError, InvalidRequestError, KafkaError, UnknownServerError
from stratalog.util import random_uuid
from stratalog.wire import write_message

_METADATA_TOPIC = "__cluster_metadata"
_REPLICAS = 1
_CONFIGS_FROM = 5
_STRICT_QUOTA_FROM = 6
#: How many usual elements of a request a topic is worth: its checks take some 40 us.
_WEIGHT = 8


def _refuse(ctx: RequestContext, request: Any, error: BaseException) -> Any:
    refusal = error if isinstance(error, KafkaError) else UnknownServerError()
    results = [_refused(ctx, each.name, refusal) for each in request.topics]
    return ctx.respond_encoded(ctx.parts(ctx.respond(), results), {refusal.code: len(results)})


@handles(ApiKey.CREATE_TOPICS, versions=(2, 7), on_error=_refuse)
async def create_topics(ctx: RequestContext, request: Any) -> Any:
    times, total = await ctx.beside(_counted, ctx, request)
    check_partition_total(total)
    counts: dict[str, int] = {}
    errors: dict[str, KafkaError] = {}
    async for topic in ctx.in_turns(request.topics, weight=_WEIGHT):
        try:
            counts[topic.name] = _checked_partitions(ctx, topic, times[topic.name])
        except KafkaError as error:
            errors[topic.name] = error
    describer = TopicDescriber(BrokerLevels.of(ctx.broker), partial(_encoded, ctx))
    results = []
    last = await ctx.beside(_by_name, request)
    async for name, requested in ctx.in_turns(last.items(), weight=_WEIGHT):
        if name not in errors:
            try:
                ctx.take_mutations(counts[name], strict_since=_STRICT_QUOTA_FROM)
            except KafkaError as error:
                errors[name] = error
        if name in errors:
            results.append(_refused(ctx, name, errors[name]))
        else:
            try:
                configs = _configs(requested)
                created = await _create(
                    ctx, name, counts[name], configs, describer, validate_only=request.validate_only
                )
            except KafkaError as error:
                errors[name] = error
                created = _refused(ctx, name, error)
            results.append(created)
    codes = await ctx.beside(_codes, times, errors)
    return ctx.respond_encoded(ctx.parts(ctx.respond(), results), codes)


def _counted(ctx: RequestContext, request: Any) -> tuple[Counter[str], int]:
    """Return how many times each name is in the request, and the partitions of those that are there once."""
    times = Counter(topic.name for topic in request.topics)
    return times, sum(_asked_partitions(ctx, each) for each in request.topics if times[each.name] == 1)


def _by_name(request: Any) -> dict[str, Any]:
    return {topic.name: topic for topic in request.topics}


def _codes(names: Iterable[str], errors: Mapping[str, KafkaError]) -> Counter[int]:
    return Counter(errors[name].code if name in errors else 0 for name in names)


def _asked_partitions(ctx: RequestContext, topic: Any) -> int:
    """Return the number of partitions requested for a topic, even if the request is otherwise invalid."""
    if topic.assignments:
        return len(topic.assignments)
    return int(ctx.broker.config["num.partitions"] if topic.num_partitions == UNSET else max(topic.num_partitions, 0))


def _checked_partitions(ctx: RequestContext, topic: Any, times: int) -> int:
    """Return the number of partitions of a valid topic; raise if the request for it is invalid."""
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
    ctx: RequestContext,
    name: str,
    partitions: int,
    configs: dict[str, str],
    describer: TopicDescriber,
    *,
    validate_only: bool,
) -> bytes:
    created: Topic | None = None
    topic_id = random_uuid()  # as in Kafka, even if the topic is only validated
    if not validate_only:
        created = await ctx.broker.workers.run(ctx.broker.topics.create, name, partitions, configs)
    result = ctx.make(
        "CreatableTopicResult",
        name=name,
        topic_id=topic_id if created is None else created.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=partitions,
        replication_factor=_REPLICAS,
        configs=(),
    )
    if ctx.version < _CONFIGS_FROM:
        return write_message(result)
    return ctx.parts(result, [entry for _, entry in sorted(describer.encoded(configs).items())])


def _encoded(ctx: RequestContext, entry: ConfigEntry, raw: str | None) -> bytes:
    return write_message(
        ctx.make(
            "CreatableTopicConfigs",
            name=entry.name,
            value=None if entry.is_sensitive else entry.value if raw is None else raw,
            read_only=entry.is_read_only,
            config_source=int(entry.source),
            is_sensitive=entry.is_sensitive,
        )
    )


def _refused(ctx: RequestContext, name: str, error: KafkaError) -> bytes:
    return write_message(
        ctx.make(
            "CreatableTopicResult",
            name=name,
            error_code=error.code,
            error_message=None if isinstance(error, UnknownServerError) else str(error),
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )
    )
