"""Metadata (3): the broker, topics and leaders; has requested topics created where allowed.

v0 to v13. v0: an empty list means all topics; from v1 on null does. v4: allow_auto_topic_creation. v8 to v10:
authorized operations of the cluster; v8: of topics. v9: flexible. v10: topic ids in the response, v12: in the request.
Without an authorizer every operation is authorized, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from stratalog.broker.encoded_topics import EncodedTopics
from stratalog.broker.internal_topics import INTERNAL_TOPICS
from stratalog.broker.metadata import Topic
from stratalog.broker.requested_topics import RequestedTopics
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.topics import check_topic_name
from stratalog.errors import (
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    ThrottlingQuotaExceededError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from stratalog.wire import write_message

# Bits are AclOperation numbers: 3 READ, 4 WRITE, 5 CREATE, 6 DELETE, 7 ALTER, 8 DESCRIBE, 9 CLUSTER_ACTION,
# 10 DESCRIBE_CONFIGS, 11 ALTER_CONFIGS, 12 IDEMPOTENT_WRITE.
_TOPIC_OPERATIONS = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
_CLUSTER_OPERATIONS = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))

#: Size of the fields after the array of topics: the cluster's operations, and later an error code.
_BEHIND_TOPICS = {8: 4, 9: 4, 10: 4, 13: 2}
_TOPIC_IDS_FROM = 10
_BY_ID_FROM = 12
#: Topics and partitions to process before the loop gets its turn: some milliseconds.
_PIECE = 5000


@handles(ApiKey.METADATA, versions=(0, 13))
async def metadata(ctx: RequestContext, request: Any) -> Any:
    broker = ctx.broker
    if await ctx.beside(_names_wrongly, ctx, request):
        return await ctx.beside(_refused_all, ctx, request)
    codes: Counter[int] = Counter()
    topics = await _asked_topics(ctx, request, codes)
    fields: dict[str, Any] = {}
    if getattr(request, "include_cluster_authorized_operations", False):
        fields["cluster_authorized_operations"] = _CLUSTER_OPERATIONS
    response = ctx.respond(
        brokers=[
            ctx.make(
                "MetadataResponseBroker",
                node_id=broker.node_id,
                host=ctx.peer.reached_host,
                port=ctx.peer.listener.port,
                rack=broker.config["broker.rack"],
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        **fields,
    )
    return ctx.respond_encoded(ctx.parts(response, topics, behind=_BEHIND_TOPICS.get(ctx.version, 0)), codes)


def _names_wrongly(ctx: RequestContext, request: Any) -> bool:
    """Return whether the request names a topic invalidly: versions 10 and 11 have ids only in their schema."""
    if ctx.version < _TOPIC_IDS_FROM or request.topics is None:
        return False
    if ctx.version < _BY_ID_FROM:
        return any(topic.name is None or topic.topic_id is not None for topic in request.topics)
    return any(topic.name is None and topic.topic_id is None for topic in request.topics)


def _refused_all(ctx: RequestContext, request: Any) -> Any:
    return ctx.respond(
        brokers=(),
        controller_id=-1,
        topics=[
            ctx.make(
                "MetadataResponseTopic",
                error_code=InvalidRequestError.code,
                name=topic.name if topic.name is not None or ctx.version >= _BY_ID_FROM else "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics
        ],
    )


async def _asked_topics(ctx: RequestContext, request: Any, codes: Counter[int]) -> list[bytes]:
    """Return the topics, and add their error codes and those of their partitions to `codes`."""
    broker = ctx.broker
    operations = _TOPIC_OPERATIONS if getattr(request, "include_topic_authorized_operations", False) else -(2**31)
    encoded = broker.encoded_topics.shape(ctx, operations)
    if request.topics is None or (ctx.version == 0 and not request.topics):
        topics = broker.topics.served()
        codes[0] += sum(1 + topic.partition_count for topic in topics)
        return await _all(encoded, topics)
    may_create = getattr(request, "allow_auto_topic_creation", True) and broker.config["auto.create.topics.enable"]
    requested = broker.requested_topics
    assert requested is not None  # in a cluster `cluster/serving.py` answers
    answers = []
    described: set[str] = set()
    async for name, topic_id in ctx.in_turns(await ctx.beside(_keys, request)):
        try:
            if topic_id is not None:
                topic = broker.topics.served_topic_by_id(topic_id)
                if topic is None:
                    raise UnknownTopicIdError("This server does not host this topic ID.")
            else:
                topic = broker.topics.served_topic(name)
                if topic is None:
                    raise _unknown(ctx, requested, name, may_create)
        except KafkaError as error:
            refused = ctx.make(
                "MetadataResponseTopic",
                error_code=error.code,
                name=name if topic_id is None or ctx.version >= 12 else "",
                topic_id=topic_id,
                is_internal=name in INTERNAL_TOPICS,
                topic_authorized_operations=operations if topic_id is None else -(2**31),
            )
            answers.append(write_message(refused))
            codes[error.code] += 1
        else:
            if topic.name not in described:  # it may be requested by name and by id
                described.add(topic.name)
                answers.append(encoded.of(topic))
                codes[0] += 1 + topic.partition_count
    return answers


async def _all(encoded: EncodedTopics, topics: list[Topic]) -> list[bytes]:
    answers = []
    size = 0
    for topic in topics:
        size += 1 + topic.partition_count
        if size > _PIECE:
            size = 0
            await asyncio.sleep(0)  # others have their turn
        answers.append(encoded.of(topic))
    encoded.forget_others(topics)
    return answers


def _keys(request: Any) -> list[Any]:
    """Return the topics by name and id, each once; if any are requested by id, only those."""
    keys: list[tuple[str | None, Any]] = [(entry.name, getattr(entry, "topic_id", None)) for entry in request.topics]
    by_id: list[tuple[str | None, Any]] = [(None, topic_id) for _, topic_id in keys if topic_id is not None]
    return list(dict.fromkeys(by_id or keys))


def _unknown(ctx: RequestContext, requested: RequestedTopics, name: str | None, may_create: bool) -> KafkaError:
    """Return the error of a topic that is not there; where allowed its creation begins: clients retry."""
    if name is None:
        return InvalidTopicError("neither a name nor an id")
    try:
        check_topic_name(name)
        if may_create:
            requested.begin(name, ctx.broker.quotas.permit(ctx.quota_client, is_strict=True))
    except InvalidTopicError as error:
        return error
    except ThrottlingQuotaExceededError as error:  # the client retries
        return UnknownTopicOrPartitionError(str(error))
    return UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
