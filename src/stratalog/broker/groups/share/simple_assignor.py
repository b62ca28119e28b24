"""The `simple` assignor: balances the members per partition and the partitions per member.

With more members than partitions, several members read a partition. Members keep their partitions as far as that is
balanced; the rest is distributed round-robin to members with too few. Only partitions with a share state are assigned.

Source: `SimpleAssignor` of Kafka 4.4.0, with its two builders. The result depends on the order of its hash maps.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Generic, TypeVar
from uuid import UUID

from stratalog.broker.groups.modern import Target
from stratalog.broker.java_hashing import JavaMap, copied_capacity, java_set, sized_capacity, uuid_hash

_TopicPartition = tuple[UUID, int]
_Numbers = JavaMap[int, None]
_Partition = TypeVar("_Partition", bound=Hashable)

ASSIGNOR = "simple"
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ShareAssignmentInput:
    """The input of an assignment.

    `targets` are the current ones, by member in the order of Kafka's map; `topics` the ids of each member's subscribed
    topics, in the order of its set; `partitions` the readable ones of each topic.
    """

    targets: Mapping[str, Target]
    topics: Mapping[str, Sequence[UUID]]
    partitions: Mapping[UUID, Sequence[int]]
    are_alike: bool


def assign_shares(given: ShareAssignmentInput) -> Mapping[str, Target]:
    """Return the new target of every member; a member without one is left out."""
    if not any(given.topics.values()):
        return {}
    drafts = _Drafts(given)
    if given.are_alike:
        _assign_alike(given, drafts, next(iter(given.topics.values())))
    else:
        _assign_by_topic(given, drafts)
    return drafts.targets()


def _topic_partition_hash(partition: _TopicPartition) -> int:
    return (31 * uuid_hash(partition[0]) + partition[1]) & _MASK


def _wide(count: int) -> int:
    """Return the capacity of a map that Java code sizes for so many entries."""
    return sized_capacity(int((count + 1) / 0.75 + 1))(0)


class _Drafts:
    """Targets in progress; members without changes keep theirs. Members are identified by their numbers."""

    def __init__(self, given: ShareAssignmentInput) -> None:
        self._before = given.targets
        self.members = list(given.targets)
        self._new: dict[int, JavaMap[UUID, _Numbers]] = {}

    def before(self, member: int) -> Target:
        return self._before[self.members[member]]

    def change(self, member: int) -> JavaMap[UUID, _Numbers]:
        """Return the draft of a member, initially a copy of its current target."""
        found = self._new.get(member)
        if found is None:
            before = self.before(member)
            found = self._new[member] = JavaMap(uuid_hash, sized_capacity(len(before))(0))
            for topic_id, partitions in before.items():
                found.put(topic_id, java_set(partitions, int, copied_capacity(len(partitions))))
        return found

    def add(self, member: int, topic_id: UUID, partition: int) -> None:
        self.change(member).get_or_make(topic_id, lambda: JavaMap(int)).put(partition, None)

    def remove(self, member: int, topic_id: UUID, partition: int) -> bool:
        partitions = self.change(member).get(topic_id)
        return partitions is not None and partitions.remove(partition)

    def targets(self) -> dict[str, Target]:
        found: dict[str, Target] = {}
        for number, member_id in enumerate(self.members):
            new = self._new.get(number)
            found[member_id] = (
                self.before(number) if new is None else {topic: tuple(parts) for topic, parts in new.items()}
            )
        return found


class _Balance(Generic[_Partition]):
    """The members of each partition, and the wanted number. `place` returns a partition's topic and number."""

    def __init__(
        self,
        drafts: _Drafts,
        partitions: Sequence[_Partition],
        members: Sequence[int],
        place: Callable[[_Partition], _TopicPartition],
        hash_of: Callable[[_Partition], int],
    ) -> None:
        self._drafts = drafts
        self._partitions = partitions
        self._place = place
        self._hash_of = hash_of
        count = len(partitions)
        self.sharing = (len(members) + count - 1) // count if count else 0
        exact = self.sharing * count / len(members)
        self.wanted = {member: ceil(exact * (at + 1)) - ceil(exact * at) for at, member in enumerate(members)}
        self._holders: JavaMap[_Partition, _Numbers] = JavaMap(hash_of, _wide(count))
        self.held: dict[int, JavaMap[_Partition, None]] = {}

    def hold(self, member: int, partition: _Partition) -> None:
        """Record a current assignment."""
        self._holders.get_or_make(partition, lambda: JavaMap(int)).put(member, None)
        self._held_by(member).put(partition, None)

    def _held_by(self, member: int) -> JavaMap[_Partition, None]:
        return self.held.setdefault(member, JavaMap(self._hash_of))

    def revoke_from_overfilled(self) -> None:
        for member in sorted(self.held):
            held, wanted = self.held[member], self.wanted.get(member, 0)
            for partition in held:
                if len(held) <= wanted:
                    break
                self._drafts.remove(member, *self._place(partition))
                holders = self._holders.get(partition)
                assert holders is not None
                holders.remove(member)
                held.remove(partition)

    def revoke_overshared(self) -> list[int]:
        """Return the members that lost partitions."""
        losers = []
        for partition, holders in self._holders.items():
            for member in holders:
                if len(holders) <= self.sharing:
                    break
                if self._drafts.remove(member, *self._place(partition)):
                    holders.remove(member)
                    self.held[member].remove(partition)
                    losers.append(member)
        return losers

    def assign_rest(self, lacking: JavaMap[int, None]) -> None:
        """Distribute partitions with too few members round-robin to members with too few partitions."""
        for partition in self._partitions:
            self._holders.get_or_make(partition, lambda: JavaMap(int))
        if not len(lacking):
            return
        turn = iter(lacking)
        was_useful = False
        for partition, holders in self._holders.items():
            missing = self.sharing - len(holders)
            while missing > 0:
                member = next(turn, None)
                if member is None:
                    if not was_useful:
                        break
                    turn, was_useful = iter(lacking), False
                    member = next(turn, None)
                    if member is None:
                        break
                if member in holders:
                    continue
                self._drafts.add(member, *self._place(partition))
                self._held_by(member).put(partition, None)
                missing -= 1
                was_useful = True
                if len(self.held[member]) >= self.wanted[member]:
                    lacking.remove(member)
            if not len(lacking):
                break


def _assign_alike(given: ShareAssignmentInput, drafts: _Drafts, topics: Sequence[UUID]) -> None:
    """Assign to members with the same subscription."""
    partitions = [(topic_id, number) for topic_id in topics for number in given.partitions.get(topic_id, ())]
    members = range(len(drafts.members))
    balance = _Balance(drafts, partitions, members, lambda each: each, _topic_partition_hash)
    lacking: JavaMap[int, None] = JavaMap(int, _wide(len(members)))
    subscribed = set(topics)
    for member in members:
        count = 0
        for topic_id, numbers in drafts.before(member).items():
            if topic_id not in subscribed:
                drafts.change(member).remove(topic_id)
                continue
            for number in numbers:
                balance.hold(member, (topic_id, number))
            count += len(numbers)
        if count < balance.wanted[member]:
            lacking.put(member, None)
        elif count:
            drafts.change(member)  # Kafka copies it here, which may change the order of its topics
    balance.revoke_from_overfilled()
    for loser in balance.revoke_overshared():
        lacking.put(loser, None)
    balance.assign_rest(lacking)


def _assign_by_topic(given: ShareAssignmentInput, drafts: _Drafts) -> None:
    """Assign topic by topic to the subscribed members."""
    topics: JavaMap[UUID, None] = JavaMap(uuid_hash)
    subscribed: dict[UUID, list[int]] = {}
    for number, member_id in enumerate(drafts.members):
        for topic_id in given.topics[member_id]:
            topics.put(topic_id, None)
            subscribed.setdefault(topic_id, []).append(number)
    for topic_id in topics:
        _assign_topic(given, drafts, topic_id, subscribed[topic_id])


def _assign_topic(given: ShareAssignmentInput, drafts: _Drafts, topic_id: UUID, members: Sequence[int]) -> None:
    balance = _Balance(drafts, given.partitions.get(topic_id, ()), members, lambda number: (topic_id, number), int)
    for member in range(len(drafts.members)):
        for number in drafts.before(member).get(topic_id, ()):
            balance.hold(member, number)
    balance.revoke_from_overfilled()
    balance.revoke_overshared()
    lacking = [member for member in members if len(balance.held.get(member, ())) < balance.wanted[member]]
    balance.assign_rest(java_set(lacking, int, _wide(len(drafts.members))))
