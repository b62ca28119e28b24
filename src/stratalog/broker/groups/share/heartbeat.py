"""ShareGroupHeartbeat: a member joins, sends its subscription, and gets its assignment.

The group is not changed here: changes are returned, and applied when they are in the log. Source:
`GroupMetadataManager.shareGroupHeartbeat` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from stratalog.broker.groups.consumer import as_read_back, as_sets, member_order, name_order
from stratalog.broker.groups.modern import JOIN_EPOCH, LEAVE_EPOCH, GroupEpoch, Target, TargetEpoch, Timeout, check_room
from stratalog.broker.groups.share.group import ShareGroup, count_subscription
from stratalog.broker.groups.share.simple_assignor import ShareAssignmentInput, assign_shares
from stratalog.broker.groups.share.state_topics import Initialization, begin_states
from stratalog.broker.groups.share.surroundings import ShareSurroundings
from stratalog.broker.groups.share.values import (
    ShareAssignment,
    ShareChangeKind,
    ShareGroupChange,
    ShareMember,
    StatePartitions,
    share_removal,
)
from stratalog.errors import FencedMemberEpochError, InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat. None means unchanged since the last one."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_join(self) -> bool:
        return self.epoch == JOIN_EPOCH

    @property
    def is_leave(self) -> bool:
        return self.epoch == LEAVE_EPOCH


@dataclass(frozen=True, slots=True)
class ShareReply:
    """`assigned` is None if the member has this assignment already."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: Target | None = None


@dataclass(slots=True)
class ShareOutcome:
    """Records to write, the reply to send after that, and the states to initialize."""

    reply: ShareReply
    changes: list[ShareGroupChange] = field(default_factory=list)
    initialization: Initialization | None = None


#: Length of a UUID in text, in Java characters.
_MEMBER_ID_MAX = 36


def check_share_heartbeat(group_id: str, request: ShareHeartbeat) -> None:
    """Raise InvalidRequestError for a malformed request."""
    if not request.member_id or len(request.member_id.encode("utf-16-be")) > 2 * _MEMBER_ID_MAX:
        raise InvalidRequestError  # without a message, as in Kafka
    for value, what in ((request.member_id, "MemberId"), (group_id, "GroupId"), (request.rack_id, "RackId")):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{what} can't be empty.")
    if request.is_join and not request.topics:
        raise InvalidRequestError("SubscribedTopicNames must be set in first request.")
    if request.epoch < LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")


def share_heartbeat(group: ShareGroup, request: ShareHeartbeat, around: ShareSurroundings) -> ShareOutcome:
    """Return the outcome of a heartbeat of a member that stays or joins."""
    settings = around.settings
    changes: list[ShareGroupChange] = []
    check_room(group, request.member_id, None, settings.members_max)
    is_new = request.is_join and request.member_id not in group.members
    old = ShareMember(request.member_id) if is_new else group.member(request.member_id)
    _check_epoch(old, request.epoch)
    new = _updated(old, request)
    if new.said != old.said:
        changes.append(ShareGroupChange(ShareChangeKind.MEMBER, new.member_id, new.said))
    bump = new.said.topics != old.said.topics
    if group.target_epoch.epoch >= group.epoch:
        bump |= group.assignment_lags
    subscribers = group.subscribers.copy()
    count_subscription(subscribers, old.said, -1)
    count_subscription(subscribers, new.said, 1)
    epoch = group.epoch
    if bump or group.seen_topics_version != around.topics.topics_version:
        metadata_hash = around.hashes.of_group(subscribers)
        if bump or metadata_hash != group.metadata.metadata_hash:
            bump, epoch = True, epoch + 1
            changes.append(ShareGroupChange(ShareChangeKind.GROUP, value=GroupEpoch(epoch, metadata_hash)))
        group.seen_topics_version = around.topics.topics_version
    target_epoch, target = update_target(group, new, epoch, subscribers, around, changes)
    member = _reconciled(new, target_epoch, target, around, changed=bump)
    if member.current is not new.current:
        changes.append(ShareGroupChange(ShareChangeKind.CURRENT, member.member_id, member.current))
    group.deadlines.set(Timeout.SESSION, member.member_id, around.now.monotonic_ms + settings.session_timeout_ms)
    assigned = member.current.assigned
    is_told = request.is_join or request.topics is not None or as_sets(assigned) != as_sets(old.current.assigned)
    reply = ShareReply(member.member_id, member.epoch, settings.heartbeat_interval_ms, assigned if is_told else None)
    return ShareOutcome(reply, changes, begin_states(group, epoch, subscribers, around, changes))


def _check_epoch(member: ShareMember, received: int) -> None:
    """Raise FencedMemberEpochError for an invalid epoch.

    The previous one is valid: the response with the current one may have been lost.
    """
    if received in (JOIN_EPOCH, member.epoch):
        return
    known = f"than the one known by the group coordinator ({member.epoch})"
    remedy = "The member must abandon all its partitions and rejoin."
    if received > member.epoch:
        raise FencedMemberEpochError(
            f"The share group member has a greater member epoch ({received}) {known}. {remedy}"
        )
    if received != member.current.previous_epoch:
        raise FencedMemberEpochError(
            f"The share group member has a smaller member epoch ({received}) {known}, and it does not match the "
            f"previous member epoch ({member.current.previous_epoch}). {remedy}"
        )


def _updated(old: ShareMember, request: ShareHeartbeat) -> ShareMember:
    said = old.said
    return replace(
        old,
        said=replace(
            said,
            rack_id=said.rack_id if request.rack_id is None else request.rack_id,
            topics=said.topics if request.topics is None else frozenset(request.topics),
            client_id=request.client_id,
            client_host=request.client_host,
        ),
    )


def update_target(
    group: ShareGroup,
    member: ShareMember,
    epoch: int,
    subscribers: Counter[str],
    around: ShareSurroundings,
    changes: list[ShareGroupChange],
) -> tuple[int, Target]:
    """Compute a new target if the group's epoch is ahead of it; return the current epoch and the member's target.

    Not more often than the assignment interval allows: until then the previous target stays in force.
    """
    target_epoch, member_id = group.target_epoch, member.member_id
    interval_ms = around.settings.assignment_interval_ms
    if target_epoch.epoch >= epoch or not target_epoch.allows_next(interval_ms, around.now.wall_ms):
        return target_epoch.epoch, group.targets.get(member_id, {})
    members = {**group.members, member_id: member}
    assigned = assign_shares(_input(group, members, subscribers, around))
    for each in member_order(members):
        target, known = assigned.get(each, {}), group.targets.get(each)
        if known is None or as_sets(known) != as_sets(target):
            changes.append(ShareGroupChange(ShareChangeKind.TARGET, each, target))
    changes.append(ShareGroupChange(ShareChangeKind.TARGET_EPOCH, value=TargetEpoch(epoch, around.now.wall_ms)))
    return epoch, assigned.get(member_id, {})


def _input(
    group: ShareGroup, members: Mapping[str, ShareMember], subscribers: Counter[str], around: ShareSurroundings
) -> ShareAssignmentInput:
    ready = (group.state_partitions or StatePartitions()).initialized
    targets: dict[str, Target] = {}
    topics: dict[str, list[UUID]] = {}
    partitions: dict[UUID, list[int]] = {}
    for member_id in member_order(members):
        targets[member_id] = as_read_back(group.targets.get(member_id, {}))
        names = name_order(members[member_id].said.topics, frozenset())
        known = [topic for name in names if (topic := around.topics.topic(name)) is not None]
        topics[member_id] = [topic.topic_id for topic in known]
        for topic in known:
            if topic.topic_id in ready and topic.topic_id not in partitions:
                readable = set(ready[topic.topic_id].partitions)
                partitions[topic.topic_id] = [number for number in range(topic.partition_count) if number in readable]
    are_alike = all(count == len(members) for count in subscribers.values())
    return ShareAssignmentInput(targets, topics, partitions, are_alike)


def _reconciled(
    member: ShareMember, target_epoch: int, target: Target, around: ShareSurroundings, *, changed: bool
) -> ShareMember:
    """Return the member with its target at once: no other member has to revoke partitions for it."""
    current = member.current
    if current.epoch == target_epoch and not changed:
        return member
    assigned = {topic_id: parts for topic_id, parts in target.items() if _is_subscribed(member, topic_id, around)}
    if current.epoch != target_epoch:
        return replace(member, current=ShareAssignment(target_epoch, current.epoch, 0, assigned))
    if as_sets(assigned) == as_sets(current.assigned):
        return member
    return replace(member, current=replace(current, assigned=assigned))


def _is_subscribed(member: ShareMember, topic_id: UUID, around: ShareSurroundings) -> bool:
    topic = around.topics.topic_by_id(topic_id)
    return topic is not None and topic.name in member.said.topics


def remove_share_member(group: ShareGroup, member: ShareMember, around: ShareSurroundings) -> list[ShareGroupChange]:
    """Return the changes that remove a member. The epoch is incremented, so that others read its partitions."""
    changes = share_removal(member.member_id)
    subscribers = group.subscribers.copy()
    count_subscription(subscribers, member.said, -1)
    epoch = group.epoch + 1
    value = GroupEpoch(epoch, around.hashes.of_group(subscribers))
    changes.append(ShareGroupChange(ShareChangeKind.GROUP, value=value))
    if len(group.members) == 1:
        changes.append(ShareGroupChange(ShareChangeKind.TARGET_EPOCH, value=TargetEpoch(epoch)))
    return changes
