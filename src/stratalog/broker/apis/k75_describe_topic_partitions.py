"""DescribeTopicPartitions: topics and their partitions in the order of their names, page by page.

An empty list asks for all topics. A page holds `response_partition_limit` partitions at most, and 2000 in any case; the
cursor that ends it is where the next one begins.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.broker.metadata.store import Topic
from stratalog.broker.topics import INTERNAL_TOPICS, check_topic_name
from stratalog.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError

_PARTITIONS_MAX = 2000
#: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS; a bit for each.
_TOPIC_OPERATIONS = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0))
def describe_topic_partitions(ctx: RequestContext, request: Any) -> Any:
    names = {topic.name for topic in request.topics} or {topic.name for topic in ctx.broker.metadata.topics()}
    begin_topic, begin_partition = "", 0
    if request.cursor is not None:
        begin_topic, begin_partition = request.cursor.topic_name, request.cursor.partition_index
        if begin_partition < 0:
            raise InvalidRequestError(
                f"DescribeTopicPartitionsRequest cursor partition must be valid: {begin_partition}"
            )
    room = min(max(request.response_partition_limit, 1), _PARTITIONS_MAX)
    answers: list[Any] = []
    cursor = None
    for name in sorted(name for name in names if name >= begin_topic):
        if not room:
            cursor = ctx.make("Cursor", topic_name=name, partition_index=0)
            break
        topic = ctx.broker.metadata.topic(name)
        if topic is None:
            answers.append(_unknown(ctx, name))
            continue
        first = begin_partition if name == begin_topic else 0
        end = min(first + room, topic.partition_count)
        answers.append(_describe(ctx, topic, range(first, end)))
        room -= max(end - first, 0)
        if end < topic.partition_count:
            cursor = ctx.make("Cursor", topic_name=name, partition_index=end)
            break
    return ctx.respond(topics=answers, next_cursor=cursor)


def _unknown(ctx: RequestContext, name: str) -> Any:
    code = UnknownTopicOrPartitionError.code
    try:
        check_topic_name(name)
    except KafkaError as error:
        code = error.code
    return ctx.make(
        "DescribeTopicPartitionsResponseTopic",
        error_code=code,
        name=name,
        topic_authorized_operations=_TOPIC_OPERATIONS,
    )


def _describe(ctx: RequestContext, topic: Topic, indexes: range) -> Any:
    node_id = ctx.broker.node_id
    partitions = []
    for index in indexes:
        partition = ctx.broker.partition(topic.name, index)
        partitions.append(
            ctx.make(
                "DescribeTopicPartitionsResponsePartition",
                error_code=0,
                partition_index=index,
                leader_id=node_id,
                leader_epoch=-1 if partition is None else partition.leader_epoch,
                replica_nodes=(node_id,),
                isr_nodes=(node_id,),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
        )
    return ctx.make(
        "DescribeTopicPartitionsResponseTopic",
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=_TOPIC_OPERATIONS,
    )
