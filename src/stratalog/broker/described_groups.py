"""Common code of the responses about consumer, streams and share groups (APIs 68, 69, 76, 77 and 89)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from stratalog.broker.groups import OPERATIONS_UNKNOWN
from stratalog.broker.server import RequestContext
from stratalog.errors import wire_code

if TYPE_CHECKING:
    from stratalog.broker.groups.consumer import ConsumerGroup, HeartbeatReply
    from stratalog.broker.groups.share import ShareGroup, ShareReply
    from stratalog.broker.groups.streams import StreamsGroup


def refuse_groups(ctx: RequestContext, request: Any, error: BaseException) -> Any:
    """Respond to a request that failed as a whole: each of its groups gets the error."""
    return ctx.respond(groups=[refused_group(ctx, group_id, wire_code(error), None) for group_id in request.group_ids])


def refused_group(ctx: RequestContext, group_id: str, code: int, message: str | None) -> Any:
    """Return the description of a group that cannot be described."""
    return ctx.make(
        "DescribedGroup",
        group_id=group_id,
        error_code=code,
        error_message=message,
        authorized_operations=OPERATIONS_UNKNOWN,
    )


def described_group(ctx: RequestContext, group: ConsumerGroup | ShareGroup | StreamsGroup, **more: Any) -> Any:
    """Return the description of a group: what all types have, and `more`."""
    return ctx.make(
        "DescribedGroup",
        error_code=0,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch.epoch,
        **more,
    )


def described_assignment(ctx: RequestContext, partitions: Mapping[UUID, Iterable[int]]) -> Any:
    """Return partitions by topic id as an `Assignment`, without deleted topics."""
    parts = []
    for topic_id, numbers in partitions.items():
        topic = ctx.broker.metadata.topic_by_id(topic_id)
        if topic is not None:
            parts.append(
                ctx.make("TopicPartitions", topic_id=topic_id, topic_name=topic.name, partitions=tuple(numbers))
            )
    return ctx.make("Assignment", topic_partitions=parts)


def answer_heartbeat(ctx: RequestContext, reply: HeartbeatReply | ShareReply) -> Any:
    """Return the response to a heartbeat of a member whose assignment is partitions by topic id."""
    assignment = None
    if reply.assigned is not None:
        parts = [
            ctx.make("TopicPartitions", topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in reply.assigned.items()
        ]
        assignment = ctx.make("Assignment", topic_partitions=parts)
    return ctx.respond(
        error_code=0,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval=reply.interval_ms,
        assignment=assignment,
    )
