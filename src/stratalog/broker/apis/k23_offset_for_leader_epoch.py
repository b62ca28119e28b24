"""OffsetForLeaderEpoch (23): the end offset of a leader epoch, to detect truncation (KIP-101, KIP-320).

v2 to v4. v2: the leader epoch that the client knows. v3: replica id. v4: flexible.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.cluster_membership import not_here
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import KafkaError


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4))
async def offset_for_leader_epoch(ctx: RequestContext, request: Any) -> Any:
    topics = []
    async for topic in ctx.in_turns(request.topics):
        partitions = []
        async for entry in ctx.in_turns(topic.partitions):
            code, epoch, end_offset = 0, -1, -1
            try:
                epoch, end_offset = _end_offset(ctx, topic.topic, entry)
            except KafkaError as error:
                code = error.code
            partitions.append(
                ctx.make(
                    "EpochEndOffset",
                    error_code=code,
                    partition=entry.partition,
                    leader_epoch=epoch,
                    end_offset=end_offset,
                )
            )
        topics.append(ctx.make("OffsetForLeaderTopicResult", topic=topic.topic, partitions=partitions))
    return ctx.respond(topics=topics)


def _end_offset(ctx: RequestContext, topic: str, entry: Any) -> tuple[int, int]:
    partition = ctx.broker.partition(topic, entry.partition)
    if partition is None:
        raise not_here(ctx.broker, topic, entry.partition)
    partition.check_epoch(entry.current_leader_epoch)
    epoch, end_offset = partition.log.leader_epochs.end_offset_for(entry.leader_epoch, partition.log.log_end_offset)
    return epoch, end_offset
