"""Metadata (3): the broker, the topics, who leads what; creates topics that are asked for, where that is allowed.

v0 to v13. v0: an empty list asks for all topics; from v1 null does. v4: allow_auto_topic_creation. v8 to v10:
authorized operations of the cluster; v8: of topics. v9: flexible. v10: topic ids in the response, v12: in the request.
Without an authorizer every operation is authorized, as in Kafka.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from typing import Any

from stratalog.broker.metadata import Topic
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.topics import INTERNAL_TOPICS, check_topic_name
from stratalog.errors import (
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    ThrottlingQuotaExceededError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from stratalog.util import encode_unsigned
from stratalog.wire import INT16, INT32, write_message

logger = logging.getLogger(__name__)

# Bits are AclOperation numbers: 3 READ, 4 WRITE, 5 CREATE, 6 DELETE, 7 ALTER, 8 DESCRIBE, 9 CLUSTER_ACTION,
# 10 DESCRIBE_CONFIGS, 11 ALTER_CONFIGS, 12 IDEMPOTENT_WRITE.
_TOPIC_OPERATIONS = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
_CLUSTER_OPERATIONS = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))

#: Bytes behind the array of topics: the cluster's operations, and later an error code.
_BEHIND_TOPICS = {8: 4, 9: 4, 10: 4, 13: 2}
_TOPIC_OPERATIONS_FROM = 8
_LEADER_EPOCH_FROM = 7
_FLEXIBLE_FROM = 9
_TOPIC_IDS_FROM = 10
_INTERNAL_FROM = 1
_BY_ID_FROM = 12
_NO_ERROR = INT16.pack(0)
_WITH_EPOCH = struct.Struct(">hiii")
_WITHOUT_EPOCH = struct.Struct(">hii")


@handles(ApiKey.METADATA, versions=(0, 13))
async def metadata(ctx: RequestContext, request: Any) -> Any:
    broker = ctx.broker
    if _names_wrongly(ctx, request):
        return _refused_all(ctx, request)
    topics = await _asked_topics(ctx, request)
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
    return ctx.respond_encoded(ctx.parts(response, topics, behind=_BEHIND_TOPICS.get(ctx.version, 0)))


def _names_wrongly(ctx: RequestContext, request: Any) -> bool:
    """Return whether the request names a topic as its version may not: 10 and 11 have ids in their schema alone."""
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


async def _asked_topics(ctx: RequestContext, request: Any) -> list[bytes]:
    store = ctx.broker.metadata
    operations = _TOPIC_OPERATIONS if getattr(request, "include_topic_authorized_operations", False) else -(2**31)
    partitions = _Partitions(ctx)
    if request.topics is None or (ctx.version == 0 and not request.topics):
        return [_describe(ctx, topic, operations, partitions) for topic in store.topics()]
    may_create = getattr(request, "allow_auto_topic_creation", True) and ctx.broker.config["auto.create.topics.enable"]
    answers = []
    described: set[str] = set()
    for name, topic_id in _distinct(_keys(request)):
        try:
            if topic_id is not None:
                topic = store.topic_by_id(topic_id)
                if topic is None:
                    raise UnknownTopicIdError("This server does not host this topic ID.")
            else:
                topic = store.topic(name) or await _create(ctx, name, may_create)
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
        else:
            if topic.name not in described:  # named twice: by its name and by its id
                described.add(topic.name)
                answers.append(_describe(ctx, topic, operations, partitions))
    return answers


def _keys(request: Any) -> list[tuple[str | None, Any]]:
    """Return the topics by name and id; once one is asked for by its id, those count that are."""
    keys: list[tuple[str | None, Any]] = [(entry.name, getattr(entry, "topic_id", None)) for entry in request.topics]
    by_id: list[tuple[str | None, Any]] = [(None, topic_id) for _, topic_id in keys if topic_id is not None]
    return by_id or keys


def _distinct(entries: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(entries))


async def _create(ctx: RequestContext, name: str | None, may_create: bool) -> Topic:
    """Return the unknown topic that was asked for, made now; or the error that says that it is not there."""
    if name is None:
        raise InvalidTopicError("neither a name nor an id")
    check_topic_name(name)
    if not may_create or name in INTERNAL_TOPICS:
        raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
    topics = ctx.broker.topics
    try:
        permit = ctx.broker.quotas.permit(ctx.quota_client, is_strict=True)
        if permit is not None:
            permit.take(ctx.broker.config["num.partitions"])
        return await ctx.broker.workers.run(topics.create, name)
    except ThrottlingQuotaExceededError as error:  # the client asks again
        raise UnknownTopicOrPartitionError(str(error)) from error
    except TopicAlreadyExistsError:  # somebody else was quicker
        return topics.known(name)
    except KafkaError as error:
        logger.warning("Topic %s was asked for and cannot be created: %s", name, error)
        raise


def _describe(ctx: RequestContext, topic: Topic, operations: int, partitions: _Partitions) -> bytes:
    """Return the topic as bytes: of each of thousands, kio would take more time than all else together."""
    version = ctx.version
    name, encoded = topic.name.encode(), partitions.of(topic)
    if version >= _FLEXIBLE_FROM:
        parts = [_NO_ERROR, encode_unsigned(len(name) + 1), name]
    else:
        parts = [_NO_ERROR, INT16.pack(len(name)), name]
    if version >= _TOPIC_IDS_FROM:
        parts.append(topic.topic_id.bytes)
    if version >= _INTERNAL_FROM:
        parts.append(b"\1" if topic.name in INTERNAL_TOPICS else b"\0")
    parts.append(encode_unsigned(len(encoded) + 1) if version >= _FLEXIBLE_FROM else INT32.pack(len(encoded)))
    parts += encoded
    if version >= _TOPIC_OPERATIONS_FROM:
        parts.append(INT32.pack(operations))
    if version >= _FLEXIBLE_FROM:
        parts.append(b"\0")
    return b"".join(parts)


class _Partitions:
    """Partitions as bytes of one version of the response.

    All are alike but for the index and, from 7 on, the leader epoch.

    They begin with: error code int16, partition index int32, leader id int32, leader epoch int32 (from 7 on).
    """

    def __init__(self, ctx: RequestContext) -> None:
        node_id = ctx.broker.node_id
        one = write_message(
            ctx.make(
                "MetadataResponsePartition",
                leader_id=node_id,
                replica_nodes=(node_id,),
                isr_nodes=(node_id,),
            )
        )
        self._node_id = node_id
        self._logs = ctx.broker.logs
        self._has_epoch = ctx.version >= _LEADER_EPOCH_FROM
        self._tail = one[_WITH_EPOCH.size if self._has_epoch else _WITHOUT_EPOCH.size :]

    def of(self, topic: Topic) -> list[bytes]:
        node_id, tail, name = self._node_id, self._tail, topic.name
        if not self._has_epoch:
            pack = _WITHOUT_EPOCH.pack
            return [pack(0, index, node_id) + tail for index in range(topic.partition_count)]
        get, pack = self._logs.get, _WITH_EPOCH.pack
        encoded = []
        for index in range(topic.partition_count):
            partition = get(name, index)
            encoded.append(pack(0, index, node_id, -1 if partition is None else partition.leader_epoch) + tail)
        return encoded
