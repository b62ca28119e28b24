"""AlterShareGroupOffsets (91): set start offsets of a share group (KIP-932) without members, created if missing.

v0. While the feature `share.version` is 0: UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stratalog.broker.groups import check_share_protocol, share
from stratalog.broker.metadata import Topic
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import KafkaError, UnknownTopicOrPartitionError

_NO_TOPIC = UUID(int=0)


@handles(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions=(0, 0))
async def alter_share_group_offsets(ctx: RequestContext, request: Any) -> Any:
    check_share_protocol(ctx.broker)
    topics = {asked.topic_name: ctx.broker.metadata.topic(asked.topic_name) for asked in request.topics}
    offsets: dict[UUID, dict[int, int]] = {}
    for asked in request.topics:
        topic = topics[asked.topic_name]
        if topic is not None:
            known = [each for each in asked.partitions if each.partition_index < topic.partition_count]
            said = {each.partition_index: each.start_offset for each in known}
            offsets.setdefault(topic.topic_id, {}).update(said)
    failures = await ctx.broker.groups.alter_share_offsets(request.group_id, offsets)
    numbers: dict[str, list[int]] = {}
    for asked in request.topics:
        numbers.setdefault(asked.topic_name, []).extend([each.partition_index for each in asked.partitions])
    return ctx.respond(
        error_code=0,
        responses=[
            _topic(ctx, name, topics[name], numbers[name], failures)
            for name in topics
            if numbers[name] or topics[name] is not None
        ],
    )


def _topic(
    ctx: RequestContext,
    name: str,
    topic: Topic | None,
    numbers: list[int],
    failures: dict[tuple[UUID, int], KafkaError],
) -> Any:
    def partition(number: int) -> Any:
        error: KafkaError | None = UnknownTopicOrPartitionError(share.UNKNOWN_TOPIC)
        if topic is not None and number < topic.partition_count:
            error = failures.get((topic.topic_id, number))
        return ctx.make(
            "AlterShareGroupOffsetsResponsePartition",
            partition_index=number,
            error_code=0 if error is None else error.code,
            error_message=None if error is None else str(error),
        )

    return ctx.make(
        "AlterShareGroupOffsetsResponseTopic",
        topic_name=name,
        topic_id=_NO_TOPIC if topic is None else topic.topic_id,
        partitions=tuple([partition(number) for number in numbers]),
    )
