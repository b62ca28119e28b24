"""Who may speak for a member of a streams group: the checks of ids, epochs and tasks, with Kafka's errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stratalog.broker.groups.streams.configured_topology import ConfiguredSubtopology
from stratalog.broker.groups.streams.group import StreamsGroup
from stratalog.broker.groups.streams.values import JOIN_EPOCH, LEAVE_STATIC_EPOCH, StreamsMember
from stratalog.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)

#: Tasks that a client says it has; None: it says nothing.
_Owned = Mapping[str, Collection[int]] | None


def check_members_max(group: StreamsGroup, member_id: str, instance_id: str | None, members_max: int) -> None:
    """Raise GroupMaxSizeReachedError for a new member of a group that is full."""
    if instance_id in group.static_members or len(group.members) < members_max:
        return
    if member_id not in group.members:
        raise GroupMaxSizeReachedError(f"The streams group has reached its maximum capacity of {members_max} members.")


def check_member_epoch(member: StreamsMember, received: int, active: _Owned, standby: _Owned, warmup: _Owned) -> None:
    """Raise FencedMemberEpochError unless a member may be at this epoch.

    The one before is good while the answer with the new one may have been lost: the member then has no task that is
    not among its own.
    """
    if received in (JOIN_EPOCH, member.epoch):
        return
    assigned = member.current.assigned
    is_lost_answer = (
        received < member.epoch
        and received == member.current.previous_epoch
        and _owns_only(active, assigned.active)
        and _owns_only(standby, assigned.standby)
        and _owns_only(warmup, assigned.warmup)
    )
    if not is_lost_answer:
        which = "greater" if received > member.epoch else "smaller"
        raise FencedMemberEpochError(
            f"The streams group member has a {which} member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )


def _owns_only(owned: _Owned, assigned: Mapping[str, Collection[int]]) -> bool:
    if owned is None:
        return False
    return all(
        subtopology in assigned and all(number in assigned[subtopology] for number in numbers)
        for subtopology, numbers in owned.items()
    )


def released_member(group: StreamsGroup, member_id: str, instance_id: str) -> StreamsMember:
    """Return the member with an instance id; UnknownMemberIdError, or FencedInstanceIdError when it has another id."""
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise FencedInstanceIdError(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        )
    return member


def check_instance_released(member: StreamsMember, member_id: str, instance_id: str) -> None:
    """Raise UnreleasedInstanceIdError unless the owner of an instance id has left for a while."""
    if member.epoch != LEAVE_STATIC_EPOCH:
        raise UnreleasedInstanceIdError(
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {member.member_id} member."
        )


def check_tasks(parts: Mapping[str, ConfiguredSubtopology], tasks: _Owned) -> None:
    """Raise InvalidRequestError for tasks that there are not."""
    for subtopology, numbers in (tasks or {}).items():
        part = parts.get(subtopology)
        if part is None:
            raise InvalidRequestError(f"Subtopology {subtopology} does not exist in the topology.")
        for number in numbers:
            if not 0 <= number < part.task_count:
                raise InvalidRequestError(
                    f"Task {number} for subtopology {subtopology} is invalid. Number of tasks for this subtopology: "
                    f"{part.task_count}"
                )
