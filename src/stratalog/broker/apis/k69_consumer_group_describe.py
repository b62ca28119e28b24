"""ConsumerGroupDescribe (69): state, epochs and members of consumer protocol groups (KIP-848).

v0 and v1. v1: whether a member uses the classic protocol. A group of another type is GROUP_ID_NOT_FOUND. While the
feature `group.version` is 0: UNSUPPORTED_VERSION for every group.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from stratalog.broker.described_groups import described_assignment, described_group, refuse_groups, refused_group
from stratalog.broker.groups import GROUP_OPERATIONS, OPERATIONS_UNKNOWN, check_consumer_protocol, consumer
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidGroupIdError, KafkaError

_CLASSIC, _CONSUMER = 0, 1


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), on_error=refuse_groups)
async def consumer_group_describe(ctx: RequestContext, request: Any) -> Any:
    check_consumer_protocol(ctx.broker)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else OPERATIONS_UNKNOWN
    return ctx.respond(
        groups=[_describe(ctx, group_id, operations) async for group_id in ctx.in_turns(request.group_ids)]
    )


def _describe(ctx: RequestContext, group_id: str, operations: int) -> Any:
    try:
        if not group_id:
            raise InvalidGroupIdError
        group = ctx.broker.groups.described_as(group_id, consumer.ConsumerGroup)
    except InvalidGroupIdError as error:
        return refused_group(ctx, group_id, error.code, None)
    except KafkaError as error:
        return refused_group(ctx, group_id, error.code, str(error))
    default = ctx.broker.groups.consumers.assignors[0]
    return described_group(
        ctx,
        group,
        assignor_name=group.preferred_assignor(None, None, default),
        members=[_member(ctx, group, member) for member in group.members.values()],
        authorized_operations=operations,
    )


def _member(ctx: RequestContext, group: consumer.ConsumerGroup, member: consumer.ConsumerMember) -> Any:
    said, current = member.subscription, member.current
    held: dict[UUID, list[int]] = {}
    for partitions in (current.assigned, current.revoking):
        for topic_id, numbers in partitions.items():
            held.setdefault(topic_id, []).extend(numbers)
    return ctx.make(
        "Member",
        member_id=member.member_id,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        member_epoch=member.epoch,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=sorted(said.topics),
        subscribed_topic_regex=said.regex,
        assignment=described_assignment(ctx, held),
        target_assignment=described_assignment(ctx, group.targets.get(member.member_id, {})),
        member_type=_CLASSIC if member.uses_classic_protocol else _CONSUMER,
    )
