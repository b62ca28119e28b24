"""Remove members that leave or time out.

Source: `consumerGroupLeave` and `consumerGroupFenceMembers` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from stratalog.broker.groups.consumer.group import ConsumerGroup
from stratalog.broker.groups.consumer.heartbeat import MemberHeartbeat
from stratalog.broker.groups.consumer.surroundings import Surroundings
from stratalog.broker.groups.consumer.values import (
    ChangeKind,
    ConsumerMember,
    GroupChange,
    PartitionEpochs,
    current_change,
    removal,
)
from stratalog.broker.groups.modern import LEAVE_STATIC_EPOCH, GroupEpoch, TargetEpoch, member_of_instance


def leaving_member(group: ConsumerGroup, request: MemberHeartbeat) -> ConsumerMember:
    """Return the member that leaves. UnknownMemberIdError, FencedInstanceIdError."""
    if request.instance_id is None:
        return group.member(request.member_id)
    return member_of_instance(group, request.member_id, request.instance_id)


def leave_for_a_while(member: ConsumerMember) -> list[GroupChange]:
    """Return the change for a static member that leaves: its partitions stay with its instance id."""
    current = member.current
    away = replace(current, epoch=LEAVE_STATIC_EPOCH, assigned=_from_the_start(current.assigned), revoking={})
    return [current_change(replace(member, current=away))]


def _from_the_start(assigned: PartitionEpochs) -> PartitionEpochs:
    return {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in assigned.items()}


def remove_members(
    group: ConsumerGroup, leaving: Mapping[str, ConsumerMember], around: Surroundings
) -> list[GroupChange]:
    """Return the changes that remove members; the epoch is incremented, so that others get their partitions."""
    changes = [change for member_id in leaving for change in removal(member_id)]
    after = group.subscriptions.copy()
    for member in leaving.values():
        after.count(member.subscription, -1)
        group.deadlines.cancel_all(member.member_id)
    regexes = Counter(member.subscription.regex for member in leaving.values() if member.subscription.regex)
    for regex, count in regexes.items():
        if group.subscriptions.regexes[regex] == count:
            changes.append(GroupChange(ChangeKind.REGEX, regex))
            after.count_resolved(group.resolved.get(regex), -1)
    epoch = group.epoch + 1
    metadata_hash = around.hashes.of_group(after.topics)
    changes.append(GroupChange(ChangeKind.GROUP, value=GroupEpoch(epoch, metadata_hash)))
    if len(leaving) == len(group.members):
        changes.append(GroupChange(ChangeKind.TARGET_EPOCH, value=TargetEpoch(epoch)))
    return changes
