"""The `range` assignor: each topic is cut into as many rows of partitions as it has subscribers, one for each in order.

Static members come first, by instance id, then the others by member id; so members with the same subscription get the
same partitions of topics with as many partitions. Source: `RangeAssignor` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from stratalog.broker.groups.consumer.assignment_input import AssignmentInput, topic_order
from stratalog.broker.groups.consumer.values import Target


def assign_ranges(given: AssignmentInput) -> Mapping[str, Target]:
    """Return the new target of every member."""
    members = given.members
    subscribers: Counter[UUID] = Counter(topic_id for member in members.values() for topic_id in member.topics)
    served: Counter[UUID] = Counter()
    targets: dict[str, Target] = {}
    for member_id in sorted(members, key=lambda each: _place(each, members[each].instance_id)):
        rows: dict[UUID, range] = {}
        for topic_id in members[member_id].topics:
            row = _row(given.partition_count(topic_id), subscribers[topic_id], served[topic_id])
            served[topic_id] += 1
            if row:
                rows[topic_id] = row
        targets[member_id] = {topic_id: tuple(rows[topic_id]) for topic_id in topic_order(rows)}
    return targets


def _place(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    return instance_id is None, (member_id if instance_id is None else instance_id).encode("utf-16-be", "surrogatepass")


def _row(partition_count: int, subscribers: int, place: int) -> range:
    """Return the partitions for the subscriber at `place`; the first ones get one more when it does not come out."""
    size, more = divmod(partition_count, subscribers)
    first = place * size + min(place, more)
    return range(first, first + size + (place < more))
