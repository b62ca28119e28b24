"""The `uniform` assignor: balances partitions between members with few moves.

This module is for members with the same subscription; `mixed_assignor` for others. Each member keeps its partitions up
to its quota; the rest goes, in order, to those with fewer. Source: `UniformHomogeneousAssignmentBuilder` of Kafka
4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from uuid import UUID

from stratalog.broker.groups.consumer.assignment_input import AssignmentInput, Draft, as_target, topic_order
from stratalog.broker.groups.consumer.mixed_assignor import assign_mixed
from stratalog.broker.groups.modern import Target
from stratalog.broker.java_hashing import copied_capacity


def assign_uniformly(given: AssignmentInput) -> Mapping[str, Target]:
    """Return the new target of every member."""
    return _Alike(given).assign() if given.are_alike else assign_mixed(given)


class _Alike:
    """One assignment. `_more` is the number of members that may still get one partition more than `_share`."""

    def __init__(self, given: AssignmentInput) -> None:
        self._given = given
        first = next(iter(given.members.values()))
        self._topics = topic_order(first.topics, copied_capacity)
        self._unassigned: list[tuple[UUID, int]] = []
        total = 0
        for topic_id in self._topics:
            count = given.partition_count(topic_id)
            total += count
            self._unassigned += [(topic_id, each) for each in range(count) if not given.has_owner(topic_id, each)]
        self._share, self._more = divmod(total, len(given.members))

    def assign(self) -> Mapping[str, Target]:
        if not self._topics:
            return {}
        targets: dict[str, Target] = {}
        lacking: list[tuple[str, Draft, int]] = []
        for at, (member_id, member) in enumerate(self._given.members.items()):
            kept, quota = self._keep(member.target, len(self._given.members) - at)
            targets[member_id] = member.target if kept is None else as_target(kept)
            if quota:
                draft = {topic: set(parts) for topic, parts in member.target.items()} if kept is None else kept
                lacking.append((member_id, draft, quota))
        rest = iter(self._unassigned)
        for member_id, draft, quota in lacking:
            for topic_id, partition in islice(rest, quota):
                draft.setdefault(topic_id, set()).add(partition)
            targets[member_id] = as_target(draft)
        return targets

    def _keep(self, target: Target, members_left: int) -> tuple[Draft | None, int]:
        """Return the partitions that a member keeps (None: all), and how many it lacks."""
        has_extra = self._more > 0
        quota = self._share + has_extra
        kept: Draft | None = None
        subscribed = set(self._topics)
        for topic_id, partitions in target.items():
            if topic_id in subscribed and len(partitions) <= quota:
                quota -= len(partitions)
                continue
            if kept is None:
                kept = {topic: set(parts) for topic, parts in target.items()}
            if topic_id not in subscribed:
                del kept[topic_id]
                continue
            self._unassigned += [(topic_id, partition) for partition in partitions[quota:]]
            kept[topic_id] -= set(partitions[quota:])
            if not kept[topic_id]:
                del kept[topic_id]
            quota = 0
        if quota > 0 and has_extra and members_left > self._more:
            quota -= 1
            has_extra = False
        self._more -= has_extra
        return kept, quota
