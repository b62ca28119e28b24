"""OffsetDelete: delete single commits of a group, unless it is subscribed to their topic."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from stratalog.broker.groups import TopicPartition, answered_topics
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import GroupSubscribedToTopicError, UnknownTopicOrPartitionError


@handles(ApiKey.OFFSET_DELETE, versions=(0, 0))
async def offset_delete(ctx: RequestContext, request: Any) -> Any:
    existing, is_all = await ctx.beside(_existing, ctx, request)
    # In one step: all commits are deleted by one batch, or none.
    allowed = ctx.broker.groups.delete_offsets(request.group_id, existing)
    await ctx.broker.groups.log.settled(request.group_id)
    return await ctx.beside(_answer, ctx, request, allowed, is_all)


def _existing(ctx: RequestContext, request: Any) -> tuple[list[TopicPartition], bool]:
    """Return the partitions that exist, and whether those are all of the request."""
    wanted = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    existing = [key for key in wanted if ctx.broker.has_partition(key.topic, key.partition)]
    return existing, len(existing) == len(wanted)


def _answer(ctx: RequestContext, request: Any, allowed: Mapping[TopicPartition, bool], is_all: bool) -> Any:
    unknown = {at for at, topic in enumerate(request.topics) if ctx.broker.metadata.topic(topic.name) is None}
    as_asked = is_all and not unknown
    kept: Container[int] = range(len(request.topics)) if as_asked else unknown
    codes = {key: 0 if ok else GroupSubscribedToTopicError.code for key, ok in allowed.items()}
    return ctx.respond(
        error_code=0,
        topics=[
            ctx.make(
                "OffsetDeleteResponseTopic",
                name=name,
                partitions=[
                    ctx.make(
                        "OffsetDeleteResponsePartition",
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            TopicPartition(name, partition.partition_index),
                            UnknownTopicOrPartitionError.code,
                        ),
                    )
                    for _, _, partition in partitions
                ],
            )
            for name, partitions in answered_topics(
                request.topics, lambda topic: topic.name, as_asked=as_asked, kept=kept
            )
        ],
    )
