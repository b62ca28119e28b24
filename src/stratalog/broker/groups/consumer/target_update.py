"""Update a group's epoch and target assignment after a subscription has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stratalog.broker.groups.consumer.assignment_input import (
    AssignmentInput,
    MemberInput,
    as_read_back,
    member_order,
    name_order,
)
from stratalog.broker.groups.consumer.group import ConsumerGroup, SubscriptionCounts
from stratalog.broker.groups.consumer.range_assignor import assign_ranges
from stratalog.broker.groups.consumer.reconciliation import Goal
from stratalog.broker.groups.consumer.surroundings import Surroundings
from stratalog.broker.groups.consumer.uniform_assignor import assign_uniformly
from stratalog.broker.groups.consumer.values import ChangeKind, ConsumerMember, GroupChange, target_change
from stratalog.broker.groups.modern import GroupEpoch, Target, TargetEpoch
from stratalog.errors import UnknownServerError

ASSIGNORS = {"uniform": assign_uniformly, "range": assign_ranges}


@dataclass(frozen=True, slots=True)
class MemberUpdate:
    """A member before and after a request; `old` is an empty one when it joins."""

    old: ConsumerMember
    new: ConsumerMember


@dataclass(frozen=True, slots=True)
class EpochUpdate:
    """The group's epoch, subscriptions and number of members after a step."""

    epoch: int
    subscriptions: SubscriptionCounts
    member_count: int


def subscriptions_after(group: ConsumerGroup, update: MemberUpdate) -> SubscriptionCounts:
    """Return the group's subscriptions after a member's change."""
    after = group.subscriptions.copy()
    old, new = update.old.subscription, update.new.subscription
    after.count(old, -1)
    after.count(new, 1)
    if old.regex and old.regex != new.regex and group.subscriptions.regexes[old.regex] == 1:
        after.count_resolved(group.resolved.get(old.regex), -1)
    return after


def update_epoch(
    group: ConsumerGroup, update: MemberUpdate, around: Surroundings, changes: list[GroupChange], *, bump: bool
) -> EpochUpdate:
    """Check the topics again; the epoch is incremented with `bump`, or if they have changed."""
    after = subscriptions_after(group, update)
    metadata_hash = around.hashes.of_group(after.topics)
    is_known = update.new.member_id in group.members or update.new.instance_id in group.static_members
    epoch = group.epoch
    if bump or metadata_hash != group.metadata.metadata_hash:
        epoch += 1
        changes.append(GroupChange(ChangeKind.GROUP, value=GroupEpoch(epoch, metadata_hash)))
    group.seen_topics_version = around.topics.topics_version
    if group.has_partition_metadata:
        changes.append(GroupChange(ChangeKind.PARTITION_METADATA))
    return EpochUpdate(epoch, after, len(group.members) + (not is_known))


def update_target(
    group: ConsumerGroup, update: MemberUpdate, epoch: EpochUpdate, around: Surroundings, changes: list[GroupChange]
) -> Goal:
    """Compute a new target if the group's epoch is ahead of it; return the member's part of the current target.

    Not more often than the assignment interval allows: until then the previous target stays in force.
    """
    target_epoch = group.target_epoch
    interval_ms = around.settings.assignment_interval_ms
    if target_epoch.epoch >= epoch.epoch or not target_epoch.allows_next(interval_ms, around.now.wall_ms):
        return Goal(target_epoch.epoch, group.target_of(update.new))
    members, targets = _members_after(group, update.new)
    default = around.settings.assignors[0]
    name = group.preferred_assignor(update.old, update.new, default)
    try:
        assigned = ASSIGNORS[name](
            _input(group, members, targets, around, are_alike=epoch.subscriptions.are_alike(epoch.member_count))
        )
    except UnknownServerError as error:
        raise UnknownServerError(
            f"Failed to compute a new target assignment for epoch {epoch.epoch}: {error}"
        ) from error
    for member_id in member_order(members):
        target = assigned.get(member_id, {})
        known = targets.get(member_id)
        if known is None or as_sets(known) != as_sets(target):
            changes.append(target_change(member_id, target))
    changes.append(GroupChange(ChangeKind.TARGET_EPOCH, value=TargetEpoch(epoch.epoch, around.now.wall_ms)))
    return Goal(epoch.epoch, assigned.get(update.new.member_id, {}))


def as_sets(target: Target) -> dict[object, frozenset[int]]:
    """Return a target without the order of its partitions."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}


def _members_after(group: ConsumerGroup, new: ConsumerMember) -> tuple[dict[str, ConsumerMember], dict[str, Target]]:
    """Return members and targets with `new` added, replacing a static member with the same instance id."""
    members, targets = {**group.members, new.member_id: new}, dict(group.targets)
    before = None if new.instance_id is None else group.static_members.get(new.instance_id)
    if before is not None and before != new.member_id:
        del members[before]
        if before in targets:
            targets[new.member_id] = targets.pop(before)
    return members, targets


def _input(
    group: ConsumerGroup,
    members: dict[str, ConsumerMember],
    targets: dict[str, Target],
    around: Surroundings,
    *,
    are_alike: bool,
) -> AssignmentInput:
    given: dict[str, MemberInput] = {}
    counts = {}
    for member_id in member_order(members):
        said = members[member_id].subscription
        resolved = group.resolved.get(said.regex) if said.regex else None
        names = name_order(said.topics, frozenset() if resolved is None else resolved.topics)
        topics = [topic for name in names if (topic := around.topics.topic(name)) is not None]
        counts.update({topic.topic_id: topic.partition_count for topic in topics})
        topic_ids = tuple([topic.topic_id for topic in topics])
        given[member_id] = MemberInput(said.instance_id, topic_ids, as_read_back(targets.get(member_id, {})))
    return AssignmentInput(given, are_alike, group.has_target_owner, counts)


def replaced(member: ConsumerMember, member_id: str) -> ConsumerMember:
    """Return a static member under another id, with its epochs reset."""
    return replace(member, member_id=member_id, current=replace(member.current, epoch=0, previous_epoch=0))
