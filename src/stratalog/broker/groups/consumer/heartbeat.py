"""ConsumerGroupHeartbeat: a member joins, sends its changes, and gets its assignment.

The group is not changed here: changes are returned, and applied when they are in the log. Source:
`GroupMetadataManager.consumerGroupHeartbeat` of Kafka 4.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stratalog.broker.groups.consumer.fencing import check_epoch
from stratalog.broker.groups.consumer.group import ConsumerGroup
from stratalog.broker.groups.consumer.reconciliation import Goal, Owned, Reconciliation
from stratalog.broker.groups.consumer.subscription_update import (
    RegexChange,
    assignor_changed,
    regex_changed,
    regexes_to_resolve,
    topics_changed,
)
from stratalog.broker.groups.consumer.surroundings import Surroundings
from stratalog.broker.groups.consumer.target_update import (
    EpochUpdate,
    MemberUpdate,
    replaced,
    update_epoch,
    update_target,
)
from stratalog.broker.groups.consumer.values import (
    ConsumerMember,
    GroupChange,
    MemberState,
    PartitionEpochs,
    current_change,
    member_change,
    removal,
    target_change,
)
from stratalog.broker.groups.modern import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Timeout,
    check_instance_released,
    check_room,
    member_of_instance,
)
from stratalog.errors import InvalidRequestError, UnsupportedAssignorError
from stratalog.util import random_uuid, uuid_to_base64

_NOT_SAID = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    """A ConsumerGroupHeartbeat. None and -1 mean unchanged since the last one."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = _NOT_SAID
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Owned | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_leave(self) -> bool:
        return self.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def says_all(self) -> bool:
        """Whether the client sends all fields, as after an error: it then gets its assignment in any case."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != _NOT_SAID and has_subscription and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """`assigned` is None if the member has this assignment already."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: PartitionEpochs | None = None


@dataclass(slots=True)
class HeartbeatOutcome:
    """Records to write, the reply to send after that, and regular expressions to match in the background."""

    reply: HeartbeatReply
    changes: list[GroupChange] = field(default_factory=list)
    regexes: frozenset[str] = frozenset()


def check_heartbeat(group_id: str, request: MemberHeartbeat, version: int, assignors: tuple[str, ...]) -> None:
    """Raise InvalidRequestError or UnsupportedAssignorError for a malformed request."""
    if version >= 1 or request.epoch > 0 or request.epoch == LEAVE_EPOCH:
        _check_not_blank(request.member_id, "MemberId")
    _check_not_blank(group_id, "GroupId")
    _check_not_blank(request.instance_id, "InstanceId")
    _check_not_blank(request.rack_id, "RackId")
    if request.epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == _NOT_SAID:
            raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
        if request.topics is None and request.regex is None:
            raise InvalidRequestError(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif request.epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )


def _check_not_blank(value: str | None, what: str) -> None:
    if value is not None and not value.strip():
        raise InvalidRequestError(f"{what} can't be empty.")


def heartbeat(group: ConsumerGroup, request: MemberHeartbeat, around: Surroundings) -> HeartbeatOutcome:
    """Return the outcome of a heartbeat of a member that stays or joins."""
    settings = around.settings
    changes: list[GroupChange] = []
    check_room(group, request.member_id, request.instance_id, settings.members_max)
    if not request.member_id:
        request = replace(request, member_id=uuid_to_base64(random_uuid()))
    old = _find(group, request, changes)
    update = MemberUpdate(old, _updated(old, request))
    named = topics_changed(update, changes)
    regex = regex_changed(group, update, changes)
    regexes = regexes_to_resolve(group, update, around)
    bump = named or regex is RegexChange.RESOLVED or assignor_changed(group, update, around)
    goal = aim(group, update, around, changes, bump=bump)
    changed = named or regex is not RegexChange.NONE
    member = reconcile(Reconciliation(group, update.new, goal, request.owned, changed, around), changes)
    due_ms = around.now.monotonic_ms + settings.session_timeout_ms
    group.deadlines.set(Timeout.SESSION, member.member_id, due_ms)
    is_told = request.epoch == JOIN_EPOCH or request.says_all or member.current.assigned != old.current.assigned
    assigned = member.current.assigned if is_told else None
    reply = HeartbeatReply(member.member_id, member.epoch, settings.heartbeat_interval_ms, assigned)
    return HeartbeatOutcome(reply, changes, regexes)


def aim(
    group: ConsumerGroup, update: MemberUpdate, around: Surroundings, changes: list[GroupChange], *, bump: bool
) -> Goal:
    """Update the group's epoch and target; return the member's target."""
    epoch = epoch_for(group, update, around, changes, bump=bump)
    return update_target(group, update, epoch, around, changes)


def epoch_for(
    group: ConsumerGroup, update: MemberUpdate, around: Surroundings, changes: list[GroupChange], *, bump: bool
) -> EpochUpdate:
    """Return the group's epoch, which is incremented when its subscriptions or topics have changed."""
    if bump or group.seen_topics_version != around.topics.topics_version:
        return update_epoch(group, update, around, changes, bump=bump)
    return EpochUpdate(group.epoch, group.subscriptions, len(group.members))


def reconcile(step: Reconciliation, changes: list[GroupChange]) -> ConsumerMember:
    """Advance the member; set a deadline while it has to revoke partitions."""
    member = step.next_member()
    if member == step.member:
        return member
    changes.append(current_change(member))
    if not member.uses_classic_protocol:
        deadlines = step.group.deadlines
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            due_ms = step.around.now.monotonic_ms + member.subscription.rebalance_timeout_ms
            deadlines.set(Timeout.REBALANCE, member.member_id, due_ms, member.epoch)
        else:
            deadlines.cancel(Timeout.REBALANCE, member.member_id)
    return member


def _find(group: ConsumerGroup, request: MemberHeartbeat, changes: list[GroupChange]) -> ConsumerMember:
    """Return the member before the request; a new one when it joins."""
    joins = request.epoch == JOIN_EPOCH
    if request.instance_id is None:
        known = group.members.get(request.member_id)
        member = ConsumerMember(request.member_id) if known is None and joins else group.member(request.member_id)
        check_epoch(member, request.epoch, request.owned)
        return member
    if not joins:
        member = member_of_instance(group, request.member_id, request.instance_id)
        check_epoch(member, request.epoch, request.owned)
        return member
    known = group.static_member(request.instance_id)
    if known is None:
        return group.members.get(request.member_id) or ConsumerMember(request.member_id)
    if not known.uses_classic_protocol:
        check_instance_released(known, request.member_id, request.instance_id)
    return replace_member(group, known, request.member_id, changes)


def replace_member(
    group: ConsumerGroup, known: ConsumerMember, member_id: str, changes: list[GroupChange]
) -> ConsumerMember:
    """Give a static member another id, with its target."""
    member = replaced(known, member_id)
    changes += removal(known.member_id)
    changes.append(member_change(member))
    changes.append(target_change(member_id, group.targets.get(known.member_id, {})))
    changes.append(current_change(member))
    group.deadlines.cancel_all(known.member_id)
    return member


def _updated(old: ConsumerMember, request: MemberHeartbeat) -> ConsumerMember:
    said = old.subscription
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        old,
        subscription=replace(
            said,
            instance_id=said.instance_id if request.instance_id is None else request.instance_id,
            rack_id=said.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=said.rebalance_timeout_ms if timeout_ms == _NOT_SAID else timeout_ms,
            assignor=said.assignor if request.assignor is None else request.assignor,
            topics=said.topics if request.topics is None else frozenset(request.topics),
            regex=said.regex if request.regex is None else request.regex,
            client_id=request.client_id,
            client_host=request.client_host,
            classic=None,
        ),
    )
