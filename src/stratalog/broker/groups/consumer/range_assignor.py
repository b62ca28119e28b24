"""The `range` assignor: divides each topic into ranges of partitions, one for each subscriber in order.

Static members come first, by instance id, then the others by member id. So members with the same subscription get the
same partitions of topics with equal partition counts. Source: `RangeAssignor` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from uuid import UUID

from stratalog.broker.groups.consumer.assignment_input import AssignmentInput, topic_order
from stratalog.broker.groups.modern import Target


def assign_ranges(given: AssignmentInput) -> Mapping[str, Target]:
    """Return the new target of every member."""
    members = given.members
    subscribers: Counter[UUID] = Counter(topic_id for member in members.values() for topic_id in member.topics)
    rows = {topic_id: _rows(given.partition_count(topic_id), count) for topic_id, count in subscribers.items()}
    targets: dict[str, Target] = {}
    for member_id in sorted(members, key=lambda each: _place(each, members[each].instance_id)):
        mine = {topic_id: row for topic_id in members[member_id].topics if (row := next(rows[topic_id], ()))}
        targets[member_id] = {topic_id: tuple(mine[topic_id]) for topic_id in topic_order(mine)}
    return targets


def _place(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    return instance_id is None, (member_id if instance_id is None else instance_id).encode("utf-16-be", "surrogatepass")


def _rows(partition_count: int, subscribers: int) -> Iterator[range]:
    """Yield the partitions of each subscriber. The first ones get one more if needed; empty ranges are left out."""
    size, more = divmod(partition_count, subscribers)
    first = 0
    for place in range(subscribers if size else more):
        end = first + size + (place < more)
        yield range(first, end)
        first = end
