"""DescribeProducers (61): the producer state of partitions, including open transactions. v0 (KIP-664)."""

from __future__ import annotations

from typing import Any

from stratalog.broker.cluster_membership import not_here
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.topics import check_topic_name
from stratalog.errors import InvalidTopicError, KafkaStorageError, NotLeaderOrFollowerError
from stratalog.log.format import ProducerSnapshotEntry


@handles(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0))
async def describe_producers(ctx: RequestContext, request: Any) -> Any:
    return ctx.respond(
        topics=[
            ctx.make(
                "TopicResponse",
                name=topic.name,
                partitions=[
                    _partition(ctx, topic.name, number) async for number in ctx.in_turns(topic.partition_indexes)
                ],
            )
            async for topic in ctx.in_turns(request.topics)
        ]
    )


def _partition(ctx: RequestContext, topic: str, number: int) -> Any:
    try:
        check_topic_name(topic)
    except InvalidTopicError as error:
        return ctx.make("PartitionResponse", partition_index=number, error_code=error.code, error_message=str(error))
    partition = ctx.broker.partition(topic, number)
    if partition is None:
        code, message = not_here(ctx.broker, topic, number).code, None
        if ctx.broker.metadata.topic(topic) is None:
            message = "This server does not host this topic-partition."
    elif partition.failure is not None:
        code, message = KafkaStorageError.code, str(partition.failure)
    elif partition.leader_epoch < 0:
        code, message = NotLeaderOrFollowerError.code, None
    else:
        producers = [_producer(ctx, producer) for producer in partition.log.active_producers()]
        return ctx.make("PartitionResponse", partition_index=number, active_producers=producers)
    return ctx.make("PartitionResponse", partition_index=number, error_code=code, error_message=message)


def _producer(ctx: RequestContext, producer: ProducerSnapshotEntry) -> Any:
    return ctx.make(
        "ProducerState",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_txn_first_offset,
    )
