"""Compute the tasks of each member from a group's members and topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.broker.groups.modern import TargetEpoch
from stratalog.broker.groups.streams.configured_topology import ConfiguredTopology
from stratalog.broker.groups.streams.group import StreamsGroup
from stratalog.broker.groups.streams.sticky_assignor import MemberTasks, SubtopologyTasks, assign_sticky
from stratalog.broker.groups.streams.surroundings import StreamsSurroundings
from stratalog.broker.groups.streams.values import (
    StreamsChangeKind,
    StreamsGroupChange,
    StreamsMember,
    Tasks,
    target_tasks_change,
)
from stratalog.broker.java_hashing import in_hash_order, string_hash

ASSIGNOR = "sticky"


@dataclass(frozen=True, slots=True)
class TaskTargets:
    """The targets of all members, and their group epoch."""

    epoch: int
    of: Mapping[str, Tasks]


def update_targets(
    group: StreamsGroup,
    member: StreamsMember | None,
    epoch: int,
    configured: ConfiguredTopology,
    around: StreamsSurroundings,
    changes: list[StreamsGroupChange],
) -> tuple[TaskTargets, bool]:
    """Return the targets, with `member` updated, and whether it is too early for new ones.

    New targets are computed when the group's epoch is ahead, but not more often than the assignment interval allows.
    """
    members, targets = _members_after(group, member)
    known = group.target_epoch
    if known.epoch >= epoch:
        return TaskTargets(known.epoch, targets), False
    if not known.allows_next(around.settings.assignment_interval_ms, around.now.wall_ms):
        return TaskTargets(known.epoch, targets), True
    assigned = _assign(group, members, configured, around)
    changes.extend(
        target_tasks_change(member_id, assigned[member_id])
        for member_id in in_hash_order(list(members), string_hash)
        if targets.get(member_id) != assigned[member_id]
    )
    target_epoch = TargetEpoch(epoch, around.now.wall_ms)
    changes.append(StreamsGroupChange(StreamsChangeKind.TARGET_EPOCH, value=target_epoch))
    return TaskTargets(epoch, assigned), False


def _members_after(
    group: StreamsGroup, member: StreamsMember | None
) -> tuple[dict[str, StreamsMember], dict[str, Tasks]]:
    """Return members and targets with `member` added, replacing a static member with the same instance id."""
    members, targets = dict(group.members), dict(group.targets)
    if member is None:
        return members, targets
    before = None if member.instance_id is None else group.static_members.get(member.instance_id)
    if before is not None and before != member.member_id:
        del members[before]
        if before in targets:
            targets[member.member_id] = targets.pop(before)
    members[member.member_id] = member
    return members, targets


def _assign(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    around: StreamsSurroundings,
) -> dict[str, Tasks]:
    if not configured.is_ready or configured.parts is None:
        return {member_id: Tasks() for member_id in members}
    given = {
        member_id: MemberTasks(
            member.process_id,
            {part: frozenset(numbers) for part, numbers in member.current.assigned.active.items()},
            member.current.assigned.standby,
            group.offsets.get(member_id, {}),
        )
        for member_id, member in members.items()
    }
    parts = {part_id: SubtopologyTasks(part.task_count, part.is_stateful) for part_id, part in configured.parts.items()}
    return assign_sticky(given, parts, around.settings.standby_replicas)
