"""Reconciliation of a member with its target: first it revokes partitions, then it gets those that others released.

Source: `CurrentAssignmentBuilder` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from stratalog.broker.groups.consumer.assignment_input import partition_order, topic_order
from stratalog.broker.groups.consumer.group import ConsumerGroup
from stratalog.broker.groups.consumer.surroundings import Surroundings
from stratalog.broker.groups.consumer.values import NO_EPOCH, ConsumerMember, MemberState, PartitionEpochs
from stratalog.broker.groups.modern import Target
from stratalog.errors import FencedMemberEpochError

#: The partitions that a client reports as owned, by topic id.
Owned = Mapping[UUID, Collection[int]]


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a member: the epoch of the target, and its part of it."""

    epoch: int
    target: Target


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One step of a member. `owned` is None if the client does not report its partitions."""

    group: ConsumerGroup
    member: ConsumerMember
    goal: Goal
    owned: Owned | None
    subscription_changed: bool
    around: Surroundings

    def next_member(self) -> ConsumerMember:
        """Return the member after this step, or unchanged.

        Raises FencedMemberEpochError for a member in an unknown state that has partitions.
        """
        member = self.member
        state = member.current.state
        if not self.subscription_changed and member.is_reconciled_to(self.goal.epoch):
            return member
        if state is MemberState.UNKNOWN:
            if self.owned is None or self.owned:
                raise FencedMemberEpochError(
                    "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                    "rejoin."
                )
            return self._advance(self.goal.epoch)
        waits = (state is MemberState.STABLE and member.epoch == self.goal.epoch) or (
            state is MemberState.UNREVOKED_PARTITIONS and self._owns_any(member.current.revoking)
        )
        if not waits:
            return self._advance(member.epoch)
        return self._give_up_unsubscribed() if self.subscription_changed else member

    def _owns_any(self, partitions: PartitionEpochs) -> bool:
        """Return whether the client may still own some of these."""
        if self.owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, {}) for topic_id, held in self.owned.items() for partition in held
        )

    def _is_subscribed(self, topic_id: UUID) -> bool:
        name = self.around.name_of(topic_id)
        return name is not None and name in self.group.topics_of(self.member.subscription)

    def _give_up_unsubscribed(self) -> ConsumerMember:
        """Revoke topics that the member is no longer subscribed to, before there is a new target."""
        member, current = self.member, self.member.current
        assigned: dict[UUID, Mapping[int, int]] = {}
        revoking = dict(current.revoking)
        for topic_id, partitions in current.assigned.items():
            if self._is_subscribed(topic_id):
                assigned[topic_id] = partitions
            else:
                revoking[topic_id] = {**revoking.get(topic_id, {}), **partitions}
        if len(assigned) == len(current.assigned):
            return member
        revoking_in_order = _in_order(revoking)
        if revoking and self._owns_any(revoking):
            return member.with_assignment(
                member.epoch, MemberState.UNREVOKED_PARTITIONS, _in_order(assigned), revoking_in_order
            )
        return member.with_assignment(member.epoch, current.state, _in_order(assigned), current.revoking)

    def _advance(self, epoch: int) -> ConsumerMember:
        """Advance towards the target. Without partitions to revoke, the member reaches the target's epoch."""
        member, goal = self.member, self.goal
        kept: dict[UUID, dict[int, int]] = {}
        revoking: dict[UUID, dict[int, int]] = {}
        new: dict[UUID, list[int]] = {}
        is_waiting = False
        for topic_id in dict.fromkeys((*goal.target, *member.current.assigned)):
            wanted = set(goal.target.get(topic_id, ())) if self._is_subscribed(topic_id) else set()
            has = member.current.assigned.get(topic_id, {})
            for partition, since in has.items():
                (kept if partition in wanted else revoking).setdefault(topic_id, {})[partition] = since
            missing = [partition for partition in wanted if partition not in has]
            free = [partition for partition in missing if self._is_free(topic_id, partition)]
            is_waiting |= len(free) < len(missing)
            if free:
                new[topic_id] = free
        if revoking and self._owns_any(revoking):
            return member.with_assignment(epoch, MemberState.UNREVOKED_PARTITIONS, _in_order(kept), _in_order(revoking))
        for topic_id, free in new.items():
            kept.setdefault(topic_id, {}).update(dict.fromkeys(free, goal.epoch))
        state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
        return member.with_assignment(goal.epoch, state, _in_order(kept), {})

    def _is_free(self, topic_id: UUID, partition: int) -> bool:
        """Return whether no other member has the partition."""
        if self.group.partition_epoch(topic_id, partition) == NO_EPOCH:
            return True
        return partition in self.member.current.revoking.get(topic_id, {})


def _in_order(epochs: PartitionEpochs) -> PartitionEpochs:
    """Return the partitions in the order in which Kafka writes them."""
    return {
        topic_id: {partition: epochs[topic_id][partition] for partition in partition_order(epochs[topic_id])}
        for topic_id in topic_order(epochs)
    }
