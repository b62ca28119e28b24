"""The state of a consumer protocol group, as its records describe it.

A group changes only by `apply`, record by record: when they are written, and when they are loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from stratalog.broker.groups.consumer.values import (
    NO_EPOCH,
    ChangeKind,
    ConsumerGroupState,
    ConsumerMember,
    CurrentAssignment,
    GroupChange,
    MemberState,
    MemberSubscription,
    PartitionEpochs,
    ResolvedRegex,
)
from stratalog.broker.groups.modern import LEAVE_EPOCH, GroupEpoch, ModernGroup, Target, TargetEpoch

PROTOCOL_TYPE = "consumer"
_NO_MEMBER_CHANGE = CurrentAssignment(LEAVE_EPOCH, LEAVE_EPOCH)


@dataclass(frozen=True, slots=True)
class Subscribers:
    """Number of members that name a topic, and of regular expressions that match it."""

    by_name: int = 0
    by_regex: int = 0


class SubscriptionCounts:
    """The subscribed topics and regular expressions of a group, with their counts."""

    def __init__(self) -> None:
        self.topics: dict[str, Subscribers] = {}
        self.regexes: Counter[str] = Counter()

    def copy(self) -> SubscriptionCounts:
        twin = SubscriptionCounts()
        twin.topics = self.topics.copy()
        twin.regexes = self.regexes.copy()
        return twin

    def count(self, said: MemberSubscription | None, change: int) -> None:
        if said is None:
            return
        for topic in said.topics:
            self._count_topic(topic, change, 0)
        if said.regex:
            self.regexes[said.regex] += change
            if self.regexes[said.regex] <= 0:
                del self.regexes[said.regex]

    def count_resolved(self, resolved: ResolvedRegex | None, change: int) -> None:
        for topic in () if resolved is None else resolved.topics:
            self._count_topic(topic, 0, change)

    def _count_topic(self, topic: str, by_name: int, by_regex: int) -> None:
        known = self.topics.get(topic, Subscribers())
        counted = Subscribers(known.by_name + by_name, known.by_regex + by_regex)
        if counted.by_name <= 0 and counted.by_regex <= 0:
            self.topics.pop(topic, None)
        else:
            self.topics[topic] = counted

    def are_alike(self, member_count: int) -> bool:
        """Return whether every member is subscribed to the same topics."""
        if not self.regexes:
            return all(counted.by_name == member_count for counted in self.topics.values())
        if next(iter(self.regexes.values())) != member_count:
            return False
        return all(counted.by_regex == 1 and counted.by_name <= 0 for counted in self.topics.values())


class ConsumerGroup(ModernGroup[ConsumerMember, GroupChange]):
    """One group. Belongs to the loop's thread.

    `resolved_at_version` is the version of the topics that the regular expressions were last matched with, None: not
    since startup. It is not stored.
    """

    type_name = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.targets: dict[str, Target] = {}
        self.subscriptions = SubscriptionCounts()
        self.resolved: dict[str, ResolvedRegex] = {}
        self.assignors: Counter[str] = Counter()
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()
        self.has_partition_metadata = False
        self._target_owners: dict[UUID, dict[int, str]] = {}
        self._partition_epochs: dict[UUID, dict[int, int]] = {}
        self.resolved_at_version: int | None = None
        self.is_resolving = False

    # --- questions ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch.epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch.epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def target_of(self, member: ConsumerMember) -> Target:
        """Return the target of a member; a static one inherits that of its instance id."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id, "")
        return self.targets.get(member_id, {})

    def has_target_owner(self, topic_id: UUID, partition: int) -> bool:
        return partition in self._target_owners.get(topic_id, ())

    def partition_epoch(self, topic_id: UUID, partition: int) -> int:
        """Return the epoch of the member that has a partition or has to revoke it; -1 without one."""
        return self._partition_epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscriptions.topics

    def topics_of(self, said: MemberSubscription) -> frozenset[str]:
        """Return the names of a member's subscribed topics, including those of its regular expression."""
        resolved = self.resolved.get(said.regex) if said.regex else None
        return said.topics if resolved is None else said.topics | resolved.topics

    def preferred_assignor(self, old: ConsumerMember | None, new: ConsumerMember | None, default: str) -> str:
        """Return the assignor that most members name, after `old` has become `new`."""
        counts = self.assignors.copy()
        for member, change in ((old, -1), (new, 1)):
            if member is not None and member.subscription.assignor is not None:
                counts[member.subscription.assignor] += change
        named = {name: count for name, count in counts.items() if count > 0}
        # in a tie, Kafka takes uniform
        return max(named, key=lambda name: (named[name], name), default=default)

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return whether a classic member with these protocols has one in common with all other classic members."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        offered = list(names)
        if not self.members:
            return bool(offered)
        return any(self.classic_protocols[name] == self.classic_members for name in offered)

    def is_classic_without(self, leaving: Mapping[str, ConsumerMember]) -> bool:
        """Return whether all other members use the classic protocol."""
        classic_leaving = sum(member.uses_classic_protocol for member in leaving.values())
        return self.classic_members - classic_leaving == len(self.members) - len(leaving)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether another member still has a partition of this member's target."""
        if member.current.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        assigned = member.current.assigned
        return any(
            partition not in assigned.get(topic_id, {}) and self.partition_epoch(topic_id, partition) != NO_EPOCH
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    # --- changes ------------------------------------------------------------------------------------------------------

    def _apply(self, change: GroupChange) -> None:
        value, name = change.value, change.name
        if change.kind is ChangeKind.GROUP:
            if isinstance(value, GroupEpoch):
                self.metadata = value
            else:
                self.is_gone = True
        elif change.kind is ChangeKind.TARGET_EPOCH:
            self.target_epoch = value if isinstance(value, TargetEpoch) else TargetEpoch(-1)
        elif change.kind is ChangeKind.MEMBER:
            self._put_subscription(name, value if isinstance(value, MemberSubscription) else None)
        elif change.kind is ChangeKind.CURRENT:
            self._put_current(name, value if isinstance(value, CurrentAssignment) else None)
        elif change.kind is ChangeKind.TARGET:
            self._put_target(name, value if isinstance(value, Mapping) else None)
        elif change.kind is ChangeKind.REGEX:
            self._put_regex(name, value if isinstance(value, ResolvedRegex) else None)
        else:
            self.has_partition_metadata = value is not None

    def _put_subscription(self, member_id: str, said: MemberSubscription | None) -> None:
        old = self.members.get(member_id)
        if said is not None:
            self._replace(member_id, old, replace(old or ConsumerMember(member_id), subscription=said))
        elif old is not None:
            self._replace(member_id, old, None)

    def _put_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        old = self.members.get(member_id)
        if current is not None:
            self._replace(member_id, old, replace(old or ConsumerMember(member_id), current=current))
        elif old is not None:
            self._replace(member_id, old, replace(old, current=_NO_MEMBER_CHANGE))

    def _replace(self, member_id: str, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if new is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = new
        if old is None or new is None or old.subscription is not new.subscription:
            self._count(old, -1)
            self._count(new, 1)
            if old is not None and old.instance_id is not None:
                self.static_members.pop(old.instance_id, None)
            if new is not None and new.instance_id is not None:
                self.static_members[new.instance_id] = member_id
        if old is not None:
            self._free(old.current.assigned, old.epoch)
            self._free(old.current.revoking, old.epoch)
        if new is not None:
            self._hold(new.current.assigned, new.epoch)
            self._hold(new.current.revoking, new.epoch)

    def _count(self, member: ConsumerMember | None, change: int) -> None:
        if member is None:
            return
        said = member.subscription
        self.subscriptions.count(said, change)
        if said.assignor is not None:
            self.assignors[said.assignor] += change
        if said.classic is not None:
            self.classic_members += change
            for protocol in said.classic.protocols:
                self.classic_protocols[protocol.name] += change

    def _free(self, held: PartitionEpochs, epoch: int) -> None:
        for topic_id, partitions in held.items():
            epochs = self._partition_epochs.get(topic_id, {})
            for partition in partitions:
                if epochs.get(partition) == epoch:  # else another member has it now
                    del epochs[partition]
            if not epochs:
                self._partition_epochs.pop(topic_id, None)

    def _hold(self, held: PartitionEpochs, epoch: int) -> None:
        for topic_id, partitions in held.items():
            self._partition_epochs.setdefault(topic_id, {}).update(dict.fromkeys(partitions, epoch))

    def _put_target(self, member_id: str, target: Target | None) -> None:
        for topic_id, partitions in self.targets.pop(member_id, {}).items():
            owners = self._target_owners.get(topic_id, {})
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self._target_owners.pop(topic_id, None)
        if target is None:
            return
        self.targets[member_id] = target
        for topic_id, partitions in target.items():
            self._target_owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        self.subscriptions.count_resolved(self.resolved.pop(regex, None), -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            self.subscriptions.count_resolved(resolved, 1)

    def tombstones(self, *, renamed: Mapping[str, str] | None = None) -> list[GroupChange]:
        """Return the records that delete the group; `renamed` has new ids of members."""
        ids = [(renamed or {}).get(member_id, member_id) for member_id in self.members]
        return [
            *(GroupChange(ChangeKind.CURRENT, member_id) for member_id in ids),
            *(GroupChange(ChangeKind.TARGET, member_id) for member_id in ids),
            GroupChange(ChangeKind.TARGET_EPOCH),
            *(GroupChange(ChangeKind.MEMBER, member_id) for member_id in ids),
            *(GroupChange(ChangeKind.REGEX, regex) for regex in self.resolved),
            GroupChange(ChangeKind.PARTITION_METADATA),
            GroupChange(ChangeKind.GROUP),
        ]
