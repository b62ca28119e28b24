"""The `uniform` assignor for members with different subscriptions.

Topics with many partitions per subscriber come first. Unassigned partitions go to the subscriber with the fewest
partitions. Then, topic by topic, partitions move from members with the most to those with the fewest, until a round
changes nothing. Source: `UniformHeterogeneousAssignmentBuilder` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from stratalog.broker.groups.consumer.assignment_input import AssignmentInput, Draft, as_target
from stratalog.broker.groups.modern import Target

_ROUNDS_MAX = 16
_NO_OWNER = -1


def assign_mixed(given: AssignmentInput) -> Mapping[str, Target]:
    """Return the new target of every member."""
    return _Mixed(given).assign()


class _Mixed:
    """One assignment. Members are identified by their position."""

    def __init__(self, given: AssignmentInput) -> None:
        self._given = given
        self._ids = list(given.members)
        self._subscribers: dict[UUID, list[int]] = {}
        for number, member in enumerate(given.members.values()):
            for topic_id in member.topics:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._drafts: list[Draft] = []
        self._sizes = [0] * len(self._ids)
        self._owners = {topic_id: [_NO_OWNER] * given.partition_count(topic_id) for topic_id in self._subscribers}

    def assign(self) -> Mapping[str, Target]:
        if not self._subscribers:
            return {}
        self._keep_what_is_subscribed()
        unassigned = {
            topic_id: [partition for partition, owner in enumerate(owners) if owner == _NO_OWNER]
            for topic_id, owners in self._owners.items()
        }
        for topic_id in self._in_order(topic_id for topic_id, partitions in unassigned.items() if partitions):
            balancer = _Balancer(self._sizes, self._subscribers[topic_id])
            for partition in unassigned[topic_id]:
                self._give(topic_id, partition, balancer.next_least_loaded())
        self._balance()
        return {member_id: as_target(draft) for member_id, draft in zip(self._ids, self._drafts, strict=True)}

    def _keep_what_is_subscribed(self) -> None:
        for number, member in enumerate(self._given.members.values()):
            draft: Draft = {}
            subscribed = set(member.topics)
            for topic_id, partitions in member.target.items():
                if topic_id in subscribed:
                    draft[topic_id] = set(partitions)
                    self._sizes[number] += len(partitions)
                    for partition in partitions:
                        self._owners[topic_id][partition] = number
            self._drafts.append(draft)

    def _in_order(self, topic_ids: Iterable[UUID]) -> list[UUID]:
        def place(topic_id: UUID) -> tuple[float, int, int, int]:
            subscribers = len(self._subscribers[topic_id])
            high, low = topic_id.int >> 64, topic_id.int & (1 << 64) - 1
            return -self._given.partition_count(topic_id) / subscribers, subscribers, _signed(high), _signed(low)

        return sorted(topic_ids, key=place)

    def _give(self, topic_id: UUID, partition: int, number: int) -> None:
        owner = self._owners[topic_id][partition]
        if owner != _NO_OWNER:
            held = self._drafts[owner][topic_id]
            held.remove(partition)
            if not held:
                del self._drafts[owner][topic_id]
            self._sizes[owner] -= 1
        self._drafts[number].setdefault(topic_id, set()).add(partition)
        self._owners[topic_id][partition] = number
        self._sizes[number] += 1

    def _balance(self) -> None:
        topics = self._in_order(topic_id for topic_id, members in self._subscribers.items() if len(members) > 1)
        last_changed: UUID | None = None
        for _ in range(_ROUNDS_MAX):
            for topic_id in topics:
                if topic_id == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def _balance_topic(self, topic_id: UUID) -> int:
        """Move partitions of a topic to members with fewer; return the number of moves."""
        balancer = _Balancer(self._sizes, self._subscribers[topic_id])
        if balancer.imbalance <= 1:
            return 0
        movable: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic_id]):
            movable.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced():
            most = balancer.next_most_loaded()
            while most != _NO_OWNER and not movable.get(most):
                balancer.exclude_most_loaded()
                most = balancer.next_most_loaded()
            if most == _NO_OWNER:
                break
            partition = movable[most].pop()
            least = balancer.next_least_loaded()
            if balancer.is_balanced():
                break
            self._give(topic_id, partition, least)
            moved += 1
        return moved


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


class _Balancer:
    """Iterates over members from both ends: those with the fewest partitions, and those with the most.

    Each end is a range of members that will have the same number, once those returned have got or given one.
    """

    def __init__(self, sizes: Sequence[int], members: Iterable[int]) -> None:
        self._sizes = sizes
        self._members = sorted(members, key=lambda number: (sizes[number], number))
        fewest, most = sizes[self._members[0]], sizes[self._members[-1]]
        self.imbalance = most - fewest
        self._least_end, self._least_count, self._next_least = 0, fewest - 1, 0
        self._most_start = self._most_end = len(self._members)
        self._most_count = most + 1
        self._next_most = len(self._members) - 1

    def is_balanced(self) -> bool:
        return self._most_count - self._least_count <= 1

    def next_least_loaded(self) -> int:
        if self._next_least >= self._least_end:
            self._least_count += 1
            while (
                self._least_end < len(self._members)
                and self._sizes[self._members[self._least_end]] == self._least_count
            ):
                self._least_end += 1
            self._next_least = 0
        self._next_least += 1
        return self._members[self._next_least - 1]

    def next_most_loaded(self) -> int:
        """Return the next member, or -1 if there is none left."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_count = self._sizes[self._members[self._most_start - 1]]
            else:
                self._most_count -= 1
            while self._most_start > 0 and self._sizes[self._members[self._most_start - 1]] == self._most_count:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return _NO_OWNER
        self._next_most -= 1
        return self._members[self._next_most + 1]

    def exclude_most_loaded(self) -> None:
        """Exclude the last member from `next_most_loaded`: it has no partition to give."""
        at, last = self._next_most + 1, self._most_end - 1
        self._members[at], self._members[last] = self._members[last], self._members[at]
        self._most_end -= 1
