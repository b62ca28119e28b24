"""Partitions of a share group with a state at the share coordinator, from the first subscription to the deletion.

A newly subscribed topic is `initializing` while the share coordinator creates the states of its partitions, then
`initialized`. A state that the share coordinator does not confirm is requested again after a while.

Source: `GroupMetadataManager` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from stratalog.broker.groups.consumer import partition_order, topic_order
from stratalog.broker.groups.modern import TopicsView
from stratalog.broker.groups.share.group import ShareGroup
from stratalog.broker.groups.share.surroundings import ShareSurroundings
from stratalog.broker.groups.share.values import ShareChangeKind, ShareGroupChange, StatePartitions, StateTopic

UNKNOWN_TOPIC = "This server does not host this topic-partition."
_NAMELESS = "<UNKNOWN>"
#: Start offset of a partition: from the group's settings, or, for a partition that was added to a known topic, its
#: beginning.
FROM_SETTINGS, FROM_BEGINNING = -1, 0

#: Partitions by topic id.
Partitions = Mapping[UUID, Collection[int]]


@dataclass(frozen=True, slots=True)
class Initialization:
    """States to initialize: the start offset of each partition, by topic id and number, at an epoch of the group."""

    epoch: int
    offsets: Mapping[UUID, Mapping[int, int]]

    @property
    def partitions(self) -> Partitions:
        return {topic_id: tuple(offsets) for topic_id, offsets in self.offsets.items()}

    def within(self, held: StatePartitions | None) -> Initialization:
        """Return the part that is not initialized yet."""
        waited = {} if held is None else held.initializing
        left: dict[UUID, dict[int, int]] = {}
        for topic_id, offsets in self.offsets.items():
            numbers = set(waited[topic_id].partitions) if topic_id in waited else set()
            if numbers & offsets.keys():
                left[topic_id] = {number: offset for number, offset in offsets.items() if number in numbers}
        return Initialization(self.epoch, left)


def begin_states(
    group: ShareGroup,
    epoch: int,
    subscribed: Iterable[str],
    around: ShareSurroundings,
    changes: list[ShareGroupChange],
) -> Initialization | None:
    """Return the states to initialize for the group's subscribed topics; None if there are none."""
    missing = _without_state(group, subscribed, around)
    if not missing:
        return None
    changes.append(state_change(initializing(group.state_partitions, missing, around.topics)))
    held = group.state_partitions or StatePartitions()
    known = {*held.initializing, *held.initialized}
    return Initialization(
        epoch,
        {
            topic_id: dict.fromkeys(topic.partitions, FROM_BEGINNING if topic_id in known else FROM_SETTINGS)
            for topic_id, topic in missing.items()
        },
    )


def _without_state(group: ShareGroup, subscribed: Iterable[str], around: ShareSurroundings) -> dict[UUID, StateTopic]:
    held = group.state_partitions or StatePartitions()
    is_recent = around.now.wall_ms - group.state_partitions_ms < around.settings.initialize_retry_ms
    missing: dict[UUID, StateTopic] = {}
    for name in subscribed:
        topic = around.topics.topic(name)
        if topic is None:
            continue
        known = [held.initialized.get(topic.topic_id)]
        if is_recent:
            known.append(held.initializing.get(topic.topic_id))
        partitions = {number for each in known if each is not None for number in each.partitions}
        if len(partitions) < topic.partition_count:
            absent = tuple([number for number in range(topic.partition_count) if number not in partitions])
            missing[topic.topic_id] = StateTopic(name, absent)
    return _in_order(missing)


def state_change(value: StatePartitions) -> ShareGroupChange:
    return ShareGroupChange(ShareChangeKind.STATE_PARTITIONS, value=value)


def initializing(held: StatePartitions | None, topics: Mapping[UUID, StateTopic], known: TopicsView) -> StatePartitions:
    """Return the partitions with those of `topics` as initializing, and no longer as deleting."""
    if held is None:
        return StatePartitions(initializing=_in_order(topics))
    together = _together(held.initializing, topics)
    deleting = [topic_id for topic_id in held.deleting if topic_id not in together]
    return replace(held, initializing=together, deleting=named(deleting, known))


def initialized(held: StatePartitions | None, done: Partitions, known: TopicsView) -> StatePartitions:
    names = named(done, known)
    topics = _in_order({topic_id: StateTopic(names[topic_id], tuple(done[topic_id])) for topic_id in done})
    if held is None:
        return StatePartitions(initialized=topics)
    return StatePartitions(
        _without(held.initializing, done),
        _together(held.initialized, topics),
        named(held.deleting, known),
    )


def not_initialized(held: StatePartitions, failed: Partitions, known: TopicsView) -> StatePartitions:
    """Return the partitions without those of `failed`, whose states could not be initialized."""
    return replace(held, initializing=_without(held.initializing, failed), deleting=named(held.deleting, known))


def deleting_all(held: StatePartitions, known: TopicsView) -> tuple[StatePartitions, Partitions]:
    """Return the state with all topics as deleting, and the partitions whose states are to be deleted."""
    topics = _together(held.initialized, held.initializing)
    again = {
        topic_id: StateTopic(topic.name, tuple(range(topic.partition_count)))
        for topic_id in held.deleting
        if (topic := known.topic_by_id(topic_id)) is not None
    }
    if again:
        topics = _together(topics, again)
    deleting = {topic_id: topic.name for topic_id, topic in topics.items()}
    return StatePartitions(deleting=deleting), {topic_id: topic.partitions for topic_id, topic in topics.items()}


def deleting_some(
    held: StatePartitions, names: Iterable[str], known: TopicsView
) -> tuple[StatePartitions, Partitions, list[tuple[str, str]]]:
    """Return the state with topics as deleting, their partitions, and a reason for each topic that is refused."""
    left, deleting = dict(held.initialized), dict(held.deleting)
    partitions: dict[UUID, Collection[int]] = {}
    refused: list[tuple[str, str]] = []
    for name in names:
        topic = known.topic(name)
        if topic is None:
            refused.append((name, UNKNOWN_TOPIC))
        elif topic.topic_id in left:
            partitions[topic.topic_id] = left.pop(topic.topic_id).partitions
            deleting[topic.topic_id] = name
        elif topic.topic_id in deleting:
            partitions[topic.topic_id] = range(topic.partition_count)
        else:
            refused.append((name, "There is no offset information to delete."))
    return replace(held, initialized=left, deleting=named(deleting, known)), partitions, refused


def deleted(held: StatePartitions, done: Collection[UUID], known: TopicsView) -> StatePartitions:
    """Return the state without topics whose states are deleted."""
    return replace(held, deleting=named([topic_id for topic_id in held.deleting if topic_id not in done], known))


def without_topics(held: StatePartitions, gone: Collection[UUID], known: TopicsView) -> StatePartitions | None:
    """Return the state without topics that were deleted from the cluster; None if it has none of them."""
    if not any(topic_id in gone for part in (held.initializing, held.initialized, held.deleting) for topic_id in part):
        return None
    return StatePartitions(
        {topic_id: topic for topic_id, topic in held.initializing.items() if topic_id not in gone},
        {topic_id: topic for topic_id, topic in held.initialized.items() if topic_id not in gone},
        named([topic_id for topic_id in held.deleting if topic_id not in gone], known),
    )


def named(topic_ids: Iterable[UUID], known: TopicsView) -> dict[UUID, str]:
    """Return the topics with their names, as Kafka writes them."""
    names: dict[UUID, str] = {}
    for topic_id in topic_order(list(topic_ids)):
        topic = known.topic_by_id(topic_id)
        names[topic_id] = _NAMELESS if topic is None else topic.name
    return names


def _in_order(topics: Mapping[UUID, StateTopic]) -> dict[UUID, StateTopic]:
    return {
        topic_id: StateTopic(topics[topic_id].name, tuple(partition_order(topics[topic_id].partitions)))
        for topic_id in topic_order(topics)
    }


def _together(first: Mapping[UUID, StateTopic], second: Mapping[UUID, StateTopic]) -> dict[UUID, StateTopic]:
    """Return the partitions of both, under the names of the second."""
    both = dict(first)
    for topic_id, topic in second.items():
        before = first[topic_id].partitions if topic_id in first else ()
        both[topic_id] = StateTopic(topic.name, tuple(dict.fromkeys((*before, *topic.partitions))))
    return _in_order(both)


def _without(topics: Mapping[UUID, StateTopic], taken: Partitions) -> dict[UUID, StateTopic]:
    rest: dict[UUID, StateTopic] = {}
    for topic_id, topic in topics.items():
        gone = set(taken.get(topic_id, ()))
        left = tuple([number for number in topic.partitions if number not in gone])
        if left:
            rest[topic_id] = replace(topic, partitions=left)
    return rest
