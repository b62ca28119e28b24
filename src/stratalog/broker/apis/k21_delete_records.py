"""DeleteRecords: increase the log start offset of partitions; -1 means the high watermark.

The response is sent when the change is durable and applied by all replicas that are alive. The cleanup policy must be
`delete` (otherwise POLICY_VIOLATION), and the topic must not be internal.
"""

from __future__ import annotations

import asyncio
from typing import Any

from stratalog.broker.cluster_membership import not_here
from stratalog.broker.groups import to_ms
from stratalog.broker.internal_topics import INTERNAL_TOPICS
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.engine import NO_EPOCH, Partition
from stratalog.errors import (
    InvalidTopicError,
    KafkaError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    RequestTimedOutError,
)

_HIGH_WATERMARK = -1
_NO_OFFSET = -1


@handles(ApiKey.DELETE_RECORDS, versions=(0, 2))
async def delete_records(ctx: RequestContext, request: Any) -> Any:
    asked: dict[str, dict[int, Any]] = {}  # the last offset for a partition wins, as in Kafka's map
    for topic in request.topics:
        if topic.partitions:
            asked.setdefault(topic.name, {}).update((wanted.partition_index, wanted) for wanted in topic.partitions)
    deadline_s = ctx.broker.loop.time() + to_ms(request.timeout) / 1000
    topics = []
    for name, entries in asked.items():
        partitions = []
        for wanted in entries.values():
            error_code, low_watermark = 0, _NO_OFFSET
            try:
                partition = await ctx.broker.workers.run(_delete, ctx, name, wanted.partition_index, wanted.offset)
                low_watermark = await _deleted_everywhere(ctx, partition, partition.log.log_start_offset, deadline_s)
            except KafkaError as error:
                error_code = error.code
            partitions.append(
                ctx.make(
                    "DeleteRecordsPartitionResult",
                    partition_index=wanted.partition_index,
                    low_watermark=low_watermark,
                    error_code=error_code,
                )
            )
        topics.append(ctx.make("DeleteRecordsTopicResult", name=name, partitions=partitions))
    # The leader epochs below are deleted on disk: a log that started earlier again after a crash would lack them.
    await ctx.broker.workers.run(ctx.broker.logs.write_checkpoints)
    return ctx.respond(topics=topics)


async def _deleted_everywhere(ctx: RequestContext, partition: Partition, offset: int, deadline_s: float) -> int:
    """Return the lowest log start offset of the replicas, once all that are alive start at `offset` or above.

    Raises NotLeaderOrFollowerError, RequestTimedOutError.
    """
    loop = ctx.broker.loop
    moved = asyncio.Event()

    def wake(_: Partition) -> None:
        loop.call_soon_threadsafe(moved.set)

    partition.add_listener(wake)
    timer = loop.call_at(deadline_s, moved.set)
    try:
        while (low := partition.low_watermark()) < offset:
            if loop.time() >= deadline_s:
                raise RequestTimedOutError(
                    f"{partition.topic}-{partition.partition}: the followers have not deleted the records yet"
                )
            moved.clear()
            await moved.wait()
            partition.check_epoch(NO_EPOCH)
    finally:
        timer.cancel()
        partition.remove_listener(wake)
    return low


def _delete(ctx: RequestContext, topic: str, index: int, offset: int) -> Partition:
    partition = ctx.broker.partition(topic, index)
    if partition is None:
        raise not_here(ctx.broker, topic, index)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"Cannot delete records of internal topic {topic}.")
    if partition.leader_epoch < 0:
        raise NotLeaderOrFollowerError(f"{topic}-{index} is not led by this broker")
    log = partition.log
    if "compact" in log.config.cleanup_policy and "delete" not in log.config.cleanup_policy:
        raise PolicyViolationError(
            f"Records of partition {topic}-{index} can not be deleted due to the configured policy"
        )
    target = log.high_watermark if offset == _HIGH_WATERMARK else offset
    if not 0 <= target <= log.high_watermark:
        raise OffsetOutOfRangeError(
            f"The specified offset {target} is higher than the high watermark {log.high_watermark} of {topic}-{index}"
        )
    log.increment_log_start_offset(target, "DeleteRecords")
    return partition
