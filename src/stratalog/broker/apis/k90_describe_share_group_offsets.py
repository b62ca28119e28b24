"""DescribeShareGroupOffsets (90): offsets of share groups (KIP-932), of some or all of their partitions.

v0 and v1. v1: the lag, the number of records that are not done; -1 if the group has not started to read. While the
feature `share.version` is 0: UNSUPPORTED_VERSION for every group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from stratalog.broker.groups import check_share_protocol
from stratalog.broker.metadata import Topic
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import LatestOffsets, ShareKey
from stratalog.errors import KafkaError, UnknownServerError, wire_code

_NOT_KNOWN = -1
_NO_TOPIC = UUID(int=0)
#: Partitions after which other requests get their turn.
_PIECE = 100


def _refuse(ctx: RequestContext, request: Any, error: BaseException) -> Any:
    return ctx.respond(groups=[_refused(ctx, group.group_id, wire_code(error), None) for group in request.groups])


def _refused(ctx: RequestContext, group_id: str, code: int, message: str | None) -> Any:
    return ctx.make("DescribeShareGroupOffsetsResponseGroup", group_id=group_id, error_code=code, error_message=message)


@handles(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=(0, 1), on_error=_refuse)
async def describe_share_group_offsets(ctx: RequestContext, request: Any) -> Any:
    check_share_protocol(ctx.broker)
    return ctx.respond(groups=[await _group(ctx, group) async for group in ctx.in_turns(request.groups)])


async def _group(ctx: RequestContext, group: Any) -> Any:
    try:
        asked, unknown = _asked(ctx, group)
        _check(group.group_id, asked)
        topics = [await _topic(ctx, group.group_id, topic, numbers) for topic, numbers in asked]
    except KafkaError as error:
        return _refused(ctx, group.group_id, error.code, str(error))
    return ctx.make(
        "DescribeShareGroupOffsetsResponseGroup", group_id=group.group_id, topics=[*topics, *unknown], error_code=0
    )


def _check(group_id: str, asked: Iterable[tuple[Topic, Sequence[int]]]) -> None:
    """Raise for requests that Kafka does not send to its share coordinator and treats as a server error."""
    for _, numbers in asked:
        if not group_id or not numbers or min(numbers) < 0:
            raise UnknownServerError("The server experienced an unexpected error when processing the request.")


def _asked(ctx: RequestContext, group: Any) -> tuple[list[tuple[Topic, Sequence[int]]], list[Any]]:
    """Return the existing topics with the requested partitions, and the results for the others."""
    metadata = ctx.broker.metadata
    if group.topics is None:
        ctx.broker.groups.loading.check(group.group_id)
        known = ctx.broker.groups.shares.get(group.group_id)
        held = None if known is None else known.state_partitions
        ready = {} if held is None else held.initialized
        found = [(metadata.topic_by_id(topic_id), state.partitions) for topic_id, state in ready.items()]
        return [(topic, numbers) for topic, numbers in found if topic is not None], []
    asked: dict[str, tuple[Topic, set[int]]] = {}
    unknown = []
    for each in group.topics:
        topic = metadata.topic(each.topic_name)
        if topic is not None:
            asked.setdefault(topic.name, (topic, set()))[1].update(each.partitions)
        else:
            answers = [_partition(ctx, number, _NOT_KNOWN) for number in each.partitions]
            unknown.append(_answered(ctx, each.topic_name, _NO_TOPIC, answers))
    return [(topic, sorted(numbers)) for topic, numbers in asked.values()], unknown


def _answered(ctx: RequestContext, name: str, topic_id: UUID, partitions: Iterable[Any]) -> Any:
    return ctx.make(
        "DescribeShareGroupOffsetsResponseTopic", topic_name=name, topic_id=topic_id, partitions=tuple(partitions)
    )


def _partition(ctx: RequestContext, number: int, start: int, leader_epoch: int = 0, lag: int = _NOT_KNOWN) -> Any:
    return ctx.make(
        "DescribeShareGroupOffsetsResponsePartition",
        partition_index=number,
        start_offset=start,
        leader_epoch=leader_epoch,
        error_code=0,
        **({"lag": lag} if ctx.version else {}),
    )


async def _topic(ctx: RequestContext, group_id: str, topic: Topic, numbers: Sequence[int]) -> Any:
    ends = LatestOffsets(ctx.broker)
    keys = [ShareKey(group_id, topic.topic_id, number) for number in numbers]
    answers = []
    for at in range(0, len(keys), _PIECE):
        answers += await asyncio.gather(*(_answer(ctx, key, topic.name, ends) for key in keys[at : at + _PIECE]))
    return _answered(ctx, topic.name, topic.topic_id, answers)


async def _answer(ctx: RequestContext, key: ShareKey, topic: str, ends: LatestOffsets) -> Any:
    """Return the result for a partition; as in Kafka, one whose state cannot be read has none."""
    try:
        found = await ctx.broker.share_persister.summary(key)
    except KafkaError:
        found = None
    if found is None:
        return _partition(ctx, key.partition, _NOT_KNOWN)
    is_counted = found.start_offset != _NOT_KNOWN and found.done_count != _NOT_KNOWN
    end = await ends.of(topic, key.partition) if is_counted else None
    if end is None:
        return _partition(ctx, key.partition, found.start_offset, found.leader_epoch)
    lag = end - found.start_offset - found.done_count
    return _partition(ctx, key.partition, found.start_offset, found.leader_epoch, lag)
