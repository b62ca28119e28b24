"""Members of the classic protocol in a consumer protocol group: their joins, syncs, heartbeats and departures.

To them, each epoch is a generation. Source: `classicGroupJoinToConsumerGroup` and related methods of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from stratalog.broker.groups.consumer.embedded_protocol import (
    EmbeddedSubscription,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from stratalog.broker.groups.consumer.fencing import check_classic_protocol, classic_member
from stratalog.broker.groups.consumer.group import ConsumerGroup
from stratalog.broker.groups.consumer.heartbeat import aim, epoch_for, reconcile, replace_member
from stratalog.broker.groups.consumer.reconciliation import Goal, Owned, Reconciliation
from stratalog.broker.groups.consumer.subscription_update import (
    RegexChange,
    regex_changed,
    regexes_to_resolve,
    topics_changed,
)
from stratalog.broker.groups.consumer.surroundings import MigrationPolicy, Surroundings
from stratalog.broker.groups.consumer.target_update import MemberUpdate
from stratalog.broker.groups.consumer.values import ClassicFacts, ConsumerMember, GroupChange, MemberState
from stratalog.broker.groups.modern import Target, Timeout, check_room, member_of_instance
from stratalog.broker.groups.values import (
    UNKNOWN_MEMBER_ID,
    Answer,
    JoinRequest,
    LeavingMember,
    LeftMember,
    SyncRequest,
)
from stratalog.errors import (
    CorruptRecordError,
    InconsistentGroupProtocolError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


@dataclass(slots=True)
class ClassicJoin:
    """The outcome of a join: `member` after it; with `downgrade`, the group is converted to a classic one."""

    member: ConsumerMember
    changes: list[GroupChange] = field(default_factory=list)
    regexes: frozenset[str] = frozenset()
    #: The member that the joining one replaces, if the group then has only members of the classic protocol.
    downgrade: ConsumerMember | None = None
    #: Whether a downgraded group has to rebalance: its target was outdated.
    needs_rebalance: bool = False


def check_join(group: ConsumerGroup, request: JoinRequest, member_id: str, around: Surroundings) -> None:
    """Raise unless a member of the classic protocol may join."""
    if around.settings.migration_policy is MigrationPolicy.DISABLED:
        raise InconsistentGroupProtocolError(
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is "
            "disabled."
        )
    check_room(group, member_id, request.instance_id, around.settings.members_max)
    if not group.supports_classic(request.protocol_type, [protocol.name for protocol in request.protocols]):
        raise InconsistentGroupProtocolError(f"Member {member_id}'s protocols are not supported.")


def join(group: ConsumerGroup, request: JoinRequest, member_id: str, around: Surroundings) -> ClassicJoin:
    """Return the outcome of a member's join, with its existing or new id."""
    changes: list[GroupChange] = []
    old, existing = _find(group, request, member_id, changes), group.static_member(request.instance_id)
    subscription = _subscription(request)
    update = MemberUpdate(old, _updated(old, request, subscription))
    named = topics_changed(update, changes)
    regex = regex_changed(group, update, changes)
    bump = named or regex is not RegexChange.NONE
    owned = _owned(subscription, around)
    joined = ClassicJoin(update.new, changes, regexes_to_resolve(group, update, around))
    if existing is not None and may_downgrade(group, {existing.member_id: existing}, around, staying=1):
        epoch = epoch_for(group, update, around, changes, bump=bump)
        joined.downgrade = existing
        joined.needs_rebalance = group.target_epoch.epoch < epoch.epoch
        goal = Goal(group.target_epoch.epoch, group.target_of(update.new))
        if joined.needs_rebalance:
            return joined
    else:
        goal = aim(group, update, around, changes, bump=bump)
    joined.member = reconcile(Reconciliation(group, update.new, goal, owned, bump, around), changes)
    return joined


def _find(group: ConsumerGroup, request: JoinRequest, member_id: str, changes: list[GroupChange]) -> ConsumerMember:
    if request.instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id != UNKNOWN_MEMBER_ID:
        return member_of_instance(group, member_id, request.instance_id)
    known = group.static_member(request.instance_id)
    return ConsumerMember(member_id) if known is None else replace_member(group, known, member_id, changes)


def _subscription(request: JoinRequest) -> EmbeddedSubscription:
    try:
        return decode_subscription(request.protocols[0].metadata)
    except CorruptRecordError as error:
        raise InconsistentGroupProtocolError(
            "Malformed embedded consumer protocol in subscription deserialization."
        ) from error


def _updated(old: ConsumerMember, request: JoinRequest, wanted: EmbeddedSubscription) -> ConsumerMember:
    said = old.subscription
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        old,
        subscription=replace(
            said,
            instance_id=said.instance_id if request.instance_id is None else request.instance_id,
            rack_id=said.rack_id if wanted.rack_id is None else wanted.rack_id,
            rebalance_timeout_ms=said.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            topics=frozenset(wanted.topics),
            regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicFacts(request.session_timeout_ms, request.protocols),
        ),
    )


def _owned(subscription: EmbeddedSubscription, around: Surroundings) -> Owned:
    topics = ((around.topics.topic(name), partitions) for name, partitions in subscription.owned.items())
    return {topic.topic_id: partitions for topic, partitions in topics if topic is not None}


def joined(group: ConsumerGroup, member: ConsumerMember, around: Surroundings) -> None:
    """Set the deadlines after a join was answered: the member has to sync."""
    assert member.classic is not None
    now_ms, deadlines = around.now.monotonic_ms, group.deadlines
    deadlines.cancel(Timeout.JOIN, member.member_id)
    deadlines.set(Timeout.SESSION, member.member_id, now_ms + member.classic.session_timeout_ms)
    deadlines.set(Timeout.SYNC, member.member_id, now_ms + member.subscription.rebalance_timeout_ms)


def sync(group: ConsumerGroup, request: SyncRequest, around: Surroundings) -> bytes:
    """Return a member's assignment, or raise the error of its response."""
    member = classic_member(group, request.member_id, request.instance_id, request.generation)
    check_classic_protocol(member, request.protocol_type, request.protocol_name)
    is_behind = group.target_epoch.epoch > member.epoch
    if is_behind and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(group, member, around)
        raise RebalanceInProgressError(
            f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin to "
            "catch up."
        )
    assert member.classic is not None
    due_ms = around.now.monotonic_ms + member.classic.session_timeout_ms
    group.deadlines.cancel(Timeout.SYNC, member.member_id)
    group.deadlines.set(Timeout.SESSION, member.member_id, due_ms)
    version = subscription_version(member.classic.protocols[0].metadata)
    assigned = {topic_id: tuple(partitions) for topic_id, partitions in member.current.assigned.items()}
    return embedded_assignment(assigned, version, around)


def embedded_assignment(target: Target, version: int, around: Surroundings) -> bytes:
    """Return an assignment in the classic protocol's format; deleted topics are left out."""
    named = ((around.name_of(topic_id), partitions) for topic_id, partitions in target.items())
    return encode_assignment({name: partitions for name, partitions in named if name is not None}, version)


def _expect_join(group: ConsumerGroup, member: ConsumerMember, around: Surroundings) -> None:
    due_ms = around.now.monotonic_ms + member.subscription.rebalance_timeout_ms
    group.deadlines.set_if_absent(Timeout.JOIN, member.member_id, due_ms)


def classic_heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, around: Surroundings
) -> None:
    """Record that a member is alive. RebalanceInProgressError asks it to rejoin."""
    member = classic_member(group, member_id, instance_id, generation)
    assert member.classic is not None
    due_ms = around.now.monotonic_ms + member.classic.session_timeout_ms
    group.deadlines.set(Timeout.SESSION, member_id, due_ms)
    state = member.current.state
    if (
        member.epoch < group.target_epoch.epoch
        or state is MemberState.UNREVOKED_PARTITIONS
        or (state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    ):
        _expect_join(group, member, around)
        raise RebalanceInProgressError(f"group {group.group_id} is rebalancing")


def find_leaving(
    group: ConsumerGroup, leaving: Iterable[LeavingMember]
) -> tuple[list[LeftMember], dict[str, ConsumerMember]]:
    """Return each request's result, and the members to remove."""
    left: list[LeftMember] = []
    found: dict[str, ConsumerMember] = {}
    for request in leaving:
        error = Answer.NONE
        try:
            member = _leaving(group, request)
            found[member.member_id] = member
        except KafkaError as refusal:
            error = Answer.of_error(refusal)
        left.append(LeftMember(request.member_id, request.instance_id, error))
    return left, found


def _leaving(group: ConsumerGroup, request: LeavingMember) -> ConsumerMember:
    if request.instance_id is None:
        return group.member(request.member_id)
    if request.member_id:
        return member_of_instance(group, request.member_id, request.instance_id)
    member = group.static_member(request.instance_id)
    if member is None:
        raise UnknownMemberIdError(f"Instance id {request.instance_id} is unknown.")
    return member


def may_downgrade(
    group: ConsumerGroup, leaving: dict[str, ConsumerMember], around: Surroundings, *, staying: int = 0
) -> bool:
    """Return whether the group can become classic without these. `staying` of them are replaced by classic members."""
    if not group.is_classic_without(leaving):
        return False
    if staying and any(member.uses_classic_protocol for member in leaving.values()):
        return False
    left = len(group.members) - len(leaving) + staying
    settings = around.settings
    return left > 0 and settings.migration_policy.allows_downgrade and left <= settings.classic_members_max
