"""The input of assignors: members with their topics and current targets, in Kafka's orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from stratalog.broker.groups.modern import Target
from stratalog.broker.java_hashing import copied_capacity, grown_capacity, in_hash_order, string_hash, uuid_hash
from stratalog.errors import UnknownServerError

#: A new target under construction.
Draft = dict[UUID, set[int]]


@dataclass(frozen=True, slots=True)
class MemberInput:
    """One member. `topics` are the ids of existing topics, in the order of its subscription."""

    instance_id: str | None
    topics: tuple[UUID, ...]
    target: Target


@dataclass(frozen=True, slots=True)
class AssignmentInput:
    """`are_alike`: all members have the same subscription. `has_owner`: whether a partition is in a current target."""

    members: Mapping[str, MemberInput]
    are_alike: bool
    has_owner: Callable[[UUID, int], bool]
    partition_counts: Mapping[UUID, int]

    def partition_count(self, topic_id: UUID) -> int:
        """Return the number of partitions of a topic; UnknownServerError if it does not exist."""
        count = self.partition_counts.get(topic_id)
        if count is None:
            raise UnknownServerError(f"Members are subscribed to topic {topic_id} which doesn't exist.")
        return count


def member_order(member_ids: Iterable[str]) -> list[str]:
    """Return member ids in the order of the hash map that Kafka passes to an assignor."""
    return in_hash_order(list(member_ids), string_hash)


def name_order(names: frozenset[str], more: frozenset[str]) -> list[str]:
    """Return topics subscribed by name and by regular expression, in Kafka's order of the union."""
    first, second = (names, more) if len(names) > len(more) else (more, names)
    ordered = in_hash_order(sorted(first), string_hash, copied_capacity)
    return ordered + [name for name in in_hash_order(sorted(second), string_hash, copied_capacity) if name not in first]


def topic_order(topic_ids: Iterable[UUID], capacity_for: Callable[[int], int] = grown_capacity) -> list[UUID]:
    return in_hash_order(list(topic_ids), uuid_hash, capacity_for)


def partition_order(partitions: Iterable[int]) -> list[int]:
    return in_hash_order(sorted(partitions), int, copied_capacity)


def as_read_back(target: Target) -> Target:
    """Return a target in the order that Kafka has after reading its record."""
    return {topic_id: tuple(in_hash_order(target[topic_id], int, copied_capacity)) for topic_id in topic_order(target)}


def as_target(draft: Mapping[UUID, Iterable[int]]) -> Target:
    """Return a target in the order in which Kafka writes it."""
    return {topic_id: tuple(partition_order(draft[topic_id])) for topic_id in topic_order(draft)}
