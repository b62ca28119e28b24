"""Checks of member ids and epochs, with Kafka's errors and messages."""

from __future__ import annotations

from stratalog.broker.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from stratalog.broker.groups.consumer.reconciliation import Owned
from stratalog.broker.groups.consumer.values import ConsumerMember
from stratalog.broker.groups.modern import JOIN_EPOCH, member_of_instance
from stratalog.errors import (
    FencedMemberEpochError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    UnknownMemberIdError,
)


def check_epoch(member: ConsumerMember, received: int, owned: Owned | None) -> None:
    """Raise FencedMemberEpochError for an invalid epoch.

    The previous one is valid if the response with the current one may have been lost: the member then only has
    partitions of its assignment.
    """
    if received in (JOIN_EPOCH, member.epoch):
        return
    if received < member.epoch and received == member.current.previous_epoch and _owns_only_assigned(member, owned):
        return
    which = "greater" if received > member.epoch else "smaller"
    raise FencedMemberEpochError(
        f"The consumer group member has a {which} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
    )


def _owns_only_assigned(member: ConsumerMember, owned: Owned | None) -> bool:
    if owned is None:
        return False
    assigned = member.current.assigned
    return all(
        topic_id in assigned and all(partition in assigned[topic_id] for partition in partitions)
        for topic_id, partitions in owned.items()
    )


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    if instance_id is None:
        member = group.member(member_id)
    elif group.static_member(instance_id) is None:
        raise UnknownMemberIdError(f"Member with instance id {instance_id} is not a member of group {group.group_id}.")
    else:
        member = member_of_instance(group, member_id, instance_id)
    if not member.uses_classic_protocol:
        raise UnknownMemberIdError(f"Member {member.member_id} does not use the classic protocol.")
    if member.epoch != generation:
        raise IllegalGenerationError(
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}."
        )
    return member


def check_classic_protocol(member: ConsumerMember, protocol_type: str | None, protocol_name: str | None) -> None:
    """Raise InconsistentGroupProtocolError when a sync has another protocol than the response to the join."""
    assert member.classic is not None
    joined_with = member.classic.protocols[0].name
    if protocol_type is not None and protocol_type != PROTOCOL_TYPE:
        raise InconsistentGroupProtocolError(
            f"The protocol type {protocol_type} from member {member.member_id} request is not equal to the group "
            f"protocol type {PROTOCOL_TYPE}."
        )
    if protocol_name is not None and protocol_name != joined_with:
        raise InconsistentGroupProtocolError(
            f"The protocol name {protocol_name} from member {member.member_id} request is not equal to the protocol "
            f"name {joined_with} returned in the join response."
        )
