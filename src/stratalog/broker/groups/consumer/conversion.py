"""Online conversion of groups between the classic and the consumer protocol.

A classic group with members is converted when the first member joins with the consumer protocol, and back when the last
such member has left. Source: `ConsumerGroup.fromClassicGroup` and `ClassicGroup.fromConsumerGroup` of Kafka 4.4.0.
"""

from __future__ import annotations

from uuid import UUID

from stratalog.broker.groups.consumer.assignment_input import as_target
from stratalog.broker.groups.consumer.classic_protocol import embedded_assignment
from stratalog.broker.groups.consumer.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    subscription_version,
)
from stratalog.broker.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from stratalog.broker.groups.consumer.surroundings import Surroundings
from stratalog.broker.groups.consumer.values import (
    ChangeKind,
    ClassicFacts,
    ConsumerMember,
    CurrentAssignment,
    GroupChange,
    MemberState,
    MemberSubscription,
    target_change,
)
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.member import Member
from stratalog.broker.groups.modern import GroupEpoch, Target, TargetEpoch, Timeout
from stratalog.broker.groups.values import GroupSettings
from stratalog.errors import CorruptRecordError, GroupIdNotFoundError, UnknownServerError


def check_upgrade(group: ClassicGroup, around: Surroundings) -> None:
    """Raise GroupIdNotFoundError unless a classic group with members may be converted."""
    group_id = group.group_id
    refused = f"Cannot upgrade classic group {group_id} to consumer group because"
    if not around.settings.migration_policy.allows_upgrade:
        raise GroupIdNotFoundError(f"{refused} online upgrade is disabled.")
    if group.protocol_type != PROTOCOL_TYPE:
        raise GroupIdNotFoundError(f"{refused} the group does not use the consumer embedded protocol.")
    if len(group.members) > around.settings.members_max:
        raise GroupIdNotFoundError(f"{refused} the group size exceeds the consumer group maximum size.")


def upgraded(classic: ClassicGroup, around: Surroundings) -> tuple[ConsumerGroup, list[GroupChange]]:
    """Return the converted group and the records that create it. GroupIdNotFoundError if that is impossible."""
    if classic.protocol is None:
        raise UnknownServerError(f"group {classic.group_id} has no protocol yet")
    refused = f"Cannot upgrade classic group {classic.group_id} to consumer group because"
    try:
        members = [_upgraded_member(member, classic, around) for member in classic.members]
    except CorruptRecordError as error:
        raise GroupIdNotFoundError(f"{refused} the embedded consumer protocol is malformed.") from error
    if any(target is None for _, target in members):
        raise GroupIdNotFoundError(
            f"{refused} an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade."
        )
    group = ConsumerGroup(classic.group_id)
    names = {topic for member, _ in members for topic in member.subscription.topics}
    metadata_hash = around.hashes.of_group(names)
    changes = [
        *(GroupChange(ChangeKind.MEMBER, member.member_id, member.subscription) for member, _ in members),
        GroupChange(ChangeKind.GROUP, value=GroupEpoch(classic.generation, metadata_hash)),
        *(target_change(member.member_id, target or {}) for member, target in members),
        GroupChange(ChangeKind.TARGET_EPOCH, value=TargetEpoch(classic.generation)),
        *(GroupChange(ChangeKind.CURRENT, member.member_id, member.current) for member, _ in members),
    ]
    group.apply(changes)
    now_ms = around.now.monotonic_ms
    for member, _ in members:
        assert member.classic is not None
        group.deadlines.set(Timeout.SESSION, member.member_id, now_ms + member.classic.session_timeout_ms)
    return group, changes


def _upgraded_member(
    member: Member, classic: ClassicGroup, around: Surroundings
) -> tuple[ConsumerMember, Target | None]:
    """Return the member with its target; None if its assignor stores user data, which would be lost."""
    target: Target | None = {}
    if member.assignment:
        got = decode_assignment(member.assignment)
        found: dict[UUID, tuple[int, ...]] = {}
        for name, partitions in got.partitions.items():
            topic = around.topics.topic(name)
            if topic is not None:
                found[topic.topic_id] = partitions
        target = None if got.has_user_data else as_target(found)
    wanted = decode_subscription(member.metadata(classic.protocol))
    generation = classic.generation
    assigned = {topic_id: dict.fromkeys(partitions, generation) for topic_id, partitions in (target or {}).items()}
    said = MemberSubscription(
        instance_id=member.instance_id,
        rack_id=wanted.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(wanted.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicFacts(member.session_timeout_ms, member.protocols),
    )
    current = CurrentAssignment(generation, generation, MemberState.STABLE, assigned, {})
    return ConsumerMember(member.member_id, said, current), target


def downgraded(
    group: ConsumerGroup,
    leaving: dict[str, ConsumerMember],
    joining: ConsumerMember | None,
    settings: GroupSettings,
    around: Surroundings,
) -> ClassicGroup:
    """Return the classic group of all members except `leaving`, with the joining one last.

    Raises GroupIdNotFoundError when a member's metadata cannot be parsed.
    """
    classic = ClassicGroup.converted(group.group_id, group.epoch, settings, around.now)
    staying = [member for member_id, member in group.members.items() if member_id not in leaving]
    for member in staying if joining is None else [*staying, joining]:
        facts = member.classic
        assert facts is not None
        said = member.subscription
        classic.members.add(
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=said.client_id,
                client_host=said.client_host,
                rebalance_timeout_ms=said.rebalance_timeout_ms,
                session_timeout_ms=facts.session_timeout_ms,
                protocols=facts.protocols,
                session_deadline_ms=around.now.monotonic_ms + facts.session_timeout_ms,
            )
        )
    classic.settle_protocol()
    try:
        for converted in classic.members:
            if joining is not None and converted.member_id == joining.member_id:
                target = group.target_of(joining)
            else:
                target = group.targets.get(converted.member_id, {})
            version = subscription_version(converted.metadata(classic.protocol))
            converted.assignment = embedded_assignment(target, version, around)
    except CorruptRecordError as error:
        raise GroupIdNotFoundError(f"Cannot downgrade the classic group {group.group_id}: {error}.") from error
    return classic
