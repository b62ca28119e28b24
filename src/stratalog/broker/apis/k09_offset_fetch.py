"""OffsetFetch: committed offsets of groups; -1 where there is none.

From version 2 on a null list means all topics; from 8 on there may be several groups; 10 has topic ids. With
`require_stable` (7), a partition with a commit in an open transaction gets UNSTABLE_OFFSET_COMMIT: the client retries
until the transaction has ended (KIP-447). A group that is still loading gets COORDINATOR_LOAD_IN_PROGRESS. Version 9
adds the member and its epoch, for groups of the consumer protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.broker.groups import CommittedOffset, TopicPartition, requested_topic
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import KafkaError, UnstableOffsetCommitError

if TYPE_CHECKING:
    from stratalog.broker.metadata import Topic

_ERROR_FROM = 2
_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10
_NONE = CommittedOffset(-1, "", -1)


@handles(ApiKey.OFFSET_FETCH, versions=(1, 10))
async def offset_fetch(ctx: RequestContext, request: Any) -> Any:
    stable = getattr(request, "require_stable", False)
    if ctx.version >= _GROUPS_FROM:
        return ctx.respond(groups=[await _group(ctx, group, stable) async for group in ctx.in_turns(request.groups)])
    try:
        ctx.broker.groups.check_fetch(request.group_id, None, -1)
        topics = await _topics(ctx, request, "OffsetFetchResponseTopic", "OffsetFetchResponsePartition", stable)
        await ctx.broker.groups.log.settled(request.group_id)
    except KafkaError as error:
        topics = _refused(ctx, request, error.code) if ctx.version < _ERROR_FROM else []
        return ctx.respond(topics=topics, error_code=error.code)
    return ctx.respond(topics=topics)


async def _group(ctx: RequestContext, group: Any, stable: bool) -> Any:
    """Return the commits of one group, or the error for this member."""
    member_id, member_epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
    try:
        ctx.broker.groups.check_fetch(group.group_id, member_id, member_epoch)
        topics = await _topics(ctx, group, "OffsetFetchResponseTopics", "OffsetFetchResponsePartitions", stable)
        await ctx.broker.groups.log.settled(group.group_id)
    except KafkaError as error:
        return ctx.make("OffsetFetchResponseGroup", group_id=group.group_id, error_code=error.code)
    return ctx.make("OffsetFetchResponseGroup", group_id=group.group_id, topics=topics)


def _refused(ctx: RequestContext, request: Any, code: int) -> list[Any]:
    """Return the same error for each partition: these versions have no error code for the group."""
    return [
        ctx.make(
            "OffsetFetchResponseTopic",
            name=topic.name,
            partitions=[
                _partition(ctx, "OffsetFetchResponsePartition", index, _NONE, code) for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]


async def _topics(ctx: RequestContext, group: Any, topic_type: str, partition_type: str, stable: bool) -> list[Any]:
    """Return the result for one group, whose messages have other names before and after version 8."""
    if group.topics is None:
        return _all_topics(ctx, group.group_id, topic_type, partition_type, stable)
    # All are looked up at once, as a transaction of this group may end in the turns of others.
    found = [_looked_up(ctx, group.group_id, requested, stable) for requested in group.topics]
    return [
        ctx.make(
            topic_type,
            name=name,
            topic_id=getattr(requested, "topic_id", None),
            partitions=[
                _partition(ctx, partition_type, index, committed, error_code)
                async for index, committed, error_code in ctx.in_turns(partitions)
            ],
        )
        async for requested, (name, partitions) in ctx.in_turns(zip(group.topics, found, strict=True))
    ]


def _looked_up(
    ctx: RequestContext, group_id: str, requested: Any, stable: bool
) -> tuple[str, list[tuple[int, CommittedOffset, int]]]:
    """Return the name of a requested topic, and its partitions, each with its commit and error code."""
    name, error_code = getattr(requested, "name", ""), 0
    if ctx.version >= _TOPIC_IDS_FROM:
        topic, error_code = requested_topic(ctx.broker, requested, by_id=True)
        name = "" if topic is None else topic.name
    else:
        topic = ctx.broker.metadata.topic(name)
    partitions = []
    for index in requested.partition_indexes:
        at = TopicPartition(name, index)
        code = error_code or _unstable(ctx, group_id, at, stable)
        partitions.append((index, _committed(ctx, group_id, at, topic) or _NONE, code))
    return name, partitions


def _committed(
    ctx: RequestContext, group_id: str, partition: TopicPartition, topic: Topic | None
) -> CommittedOffset | None:
    """Return the commit if it is for the current topic of that name."""
    found = ctx.broker.groups.commits.committed.get(group_id, partition)
    if found is None or topic is None or found.counts_for(topic.topic_id):
        return found
    return None


def _unstable(ctx: RequestContext, group_id: str, partition: TopicPartition, stable: bool) -> int:
    is_pending = stable and ctx.broker.groups.commits.pending.is_pending(group_id, partition)
    return UnstableOffsetCommitError.code if is_pending else 0


def _all_topics(ctx: RequestContext, group_id: str, topic_type: str, partition_type: str, stable: bool) -> list[Any]:
    by_topic: dict[str, list[tuple[int, CommittedOffset]]] = {}
    for partition, committed in ctx.broker.groups.commits.committed.of_group(group_id).items():
        by_topic.setdefault(partition.topic, []).append((partition.partition, committed))
    answers = []
    for name, commits in by_topic.items():
        topic = ctx.broker.metadata.topic(name)
        if topic is None and ctx.version >= _TOPIC_IDS_FROM:
            continue  # a deleted topic has no id
        counting = [(index, found) for index, found in commits if topic is None or found.counts_for(topic.topic_id)]
        if not counting:
            continue
        answers.append(
            ctx.make(
                topic_type,
                name=name,
                topic_id=None if topic is None else topic.topic_id,
                partitions=[
                    _partition(
                        ctx,
                        partition_type,
                        index,
                        committed,
                        _unstable(ctx, group_id, TopicPartition(name, index), stable),
                    )
                    for index, committed in counting
                ],
            )
        )
    return answers


def _partition(
    ctx: RequestContext, partition_type: str, index: int, committed: CommittedOffset, error_code: int
) -> Any:
    if error_code == UnstableOffsetCommitError.code:
        committed = _NONE
    return ctx.make(
        partition_type,
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error_code,
    )
