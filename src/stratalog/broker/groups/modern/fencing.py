"""Checks of group size and static members, with Kafka's errors and messages."""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups.modern.group import MemberT, ModernGroup, ModernMember
from stratalog.broker.groups.modern.values import LEAVE_STATIC_EPOCH
from stratalog.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)


def check_room(group: ModernGroup[Any, Any], member_id: str, instance_id: str | None, members_max: int) -> None:
    """Raise GroupMaxSizeReachedError for a new member of a group that is full."""
    if instance_id in group.static_members or len(group.members) < members_max or member_id in group.members:
        return
    raise GroupMaxSizeReachedError(
        f"The {group.type_name} group has reached its maximum capacity of {members_max} members."
    )


def member_of_instance(group: ModernGroup[MemberT, Any], member_id: str, instance_id: str) -> MemberT:
    """Return the member with an instance id; UnknownMemberIdError, or FencedInstanceIdError if its id differs."""
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise FencedInstanceIdError(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        )
    return member


def check_instance_released(member: ModernMember, member_id: str, instance_id: str) -> None:
    """Raise UnreleasedInstanceIdError unless the owner of an instance id has left temporarily."""
    if member.epoch != LEAVE_STATIC_EPOCH:
        raise UnreleasedInstanceIdError(
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {member.member_id} member."
        )
