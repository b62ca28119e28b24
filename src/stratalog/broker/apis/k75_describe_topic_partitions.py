"""DescribeTopicPartitions: topics and their partitions sorted by name, page by page.

An empty list means all topics. A page has at most `response_partition_limit` partitions, and never more than 2000; its
cursor is the start of the next page.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

from stratalog.broker.internal_topics import INTERNAL_TOPICS
from stratalog.broker.metadata import Topic
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.topics import check_topic_name
from stratalog.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError, wire_code
from stratalog.wire import INT16, write_message

_PARTITIONS_MAX = 2000
_PARTITION = struct.Struct(">hiii")
# Sizes of the fields after an array.
_OPERATIONS_BYTES = 4
_NO_CURSOR_BYTES = 1
#: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS; a bit for each.
_TOPIC_OPERATIONS = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))


def _refuse(ctx: RequestContext, request: Any, error: BaseException) -> Any:
    code = wire_code(error)
    return ctx.respond(
        topics=[
            ctx.make("DescribeTopicPartitionsResponseTopic", error_code=code, name=topic.name)
            for topic in request.topics
        ],
        next_cursor=None,
    )


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), on_error=_refuse)
async def describe_topic_partitions(ctx: RequestContext, request: Any) -> Any:
    begin_topic, begin_partition = "", 0
    if request.cursor is not None:
        begin_topic, begin_partition = request.cursor.topic_name, request.cursor.partition_index
        if begin_partition < 0:
            raise InvalidRequestError(
                f"DescribeTopicPartitionsRequest cursor partition must be valid: {begin_partition}"
            )
    names = await ctx.beside(_names, ctx, request, begin_topic)
    if request.cursor is not None and request.topics and names[:1] != [begin_topic]:
        raise InvalidRequestError(
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {begin_topic}"
        )
    room = min(max(request.response_partition_limit, 1), _PARTITIONS_MAX)
    answers: list[bytes] = []
    codes: Counter[int] = Counter()
    partitions = _Partitions(ctx)
    cursor = None
    async for name in ctx.in_turns(names):
        if not room:
            cursor = ctx.make("Cursor", topic_name=name, partition_index=0)
            break
        topic = ctx.broker.topics.served_topic(name)
        if topic is None:
            answers.append(_unknown(ctx, name))
            codes[INT16.unpack_from(answers[-1])[0]] += 1
            continue
        first = begin_partition if name == begin_topic else 0
        end = min(first + room, topic.partition_count)
        answers.append(_describe(ctx, topic, partitions.of(topic, range(first, end))))
        codes[0] += 1 + max(end - first, 0)
        room -= max(end - first, 0)
        if end < topic.partition_count:
            cursor = ctx.make("Cursor", topic_name=name, partition_index=end)
            break
    without_cursor = write_message(ctx.respond(next_cursor=None))
    response = ctx.respond(next_cursor=cursor)
    cursor_bytes = _NO_CURSOR_BYTES + len(write_message(response)) - len(without_cursor)
    return ctx.respond_encoded(ctx.parts(response, answers, behind=cursor_bytes), codes)


def _names(ctx: RequestContext, request: Any, begin: str) -> list[str]:
    """Return the names of the topics from `begin` on, sorted and each once."""
    names = {topic.name for topic in request.topics or ctx.broker.topics.served()}
    return sorted(name for name in names if name >= begin)


def _unknown(ctx: RequestContext, name: str) -> bytes:
    code = UnknownTopicOrPartitionError.code
    try:
        check_topic_name(name)
    except KafkaError as error:
        code = error.code
    unknown = ctx.make(
        "DescribeTopicPartitionsResponseTopic",
        error_code=code,
        name=name,
        topic_authorized_operations=_TOPIC_OPERATIONS,
    )
    return write_message(unknown)


def _describe(ctx: RequestContext, topic: Topic, partitions: list[bytes]) -> bytes:
    described = ctx.make(
        "DescribeTopicPartitionsResponseTopic",
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=_TOPIC_OPERATIONS,
    )
    return ctx.parts(described, partitions, behind=_OPERATIONS_BYTES)


class _Partitions:
    """Encoded partitions: error code int16, index int32, leader id int32, leader epoch int32, and a constant rest."""

    def __init__(self, ctx: RequestContext) -> None:
        self._node_id = ctx.broker.node_id
        self._logs = ctx.broker.logs
        one = ctx.make(
            "DescribeTopicPartitionsResponsePartition",
            leader_id=self._node_id,
            replica_nodes=(self._node_id,),
            isr_nodes=(self._node_id,),
            eligible_leader_replicas=(),
            last_known_elr=(),
        )
        self._tail = write_message(one)[_PARTITION.size :]

    def of(self, topic: Topic, indexes: range) -> list[bytes]:
        encoded = []
        for index in indexes:
            partition = self._logs.get(topic.name, index)
            epoch = -1 if partition is None else partition.leader_epoch
            encoded.append(_PARTITION.pack(0, index, self._node_id, epoch) + self._tail)
        return encoded
