"""Committed offsets in memory, and their expiry. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from stratalog.broker.groups.values import AgeSince


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One commit. Times in milliseconds since the epoch; leader epoch -1: unknown.

    `expire_timestamp_ms` is set only if an old client requested its own retention (OffsetCommit 2 to 4). `topic_id` is
    None for a commit stored without one: with its own expiry, or by older software. `record_offset` is the position in
    `__consumer_offsets` (-1: unknown); it is not part of the commit.
    """

    offset: int
    metadata: str
    commit_timestamp_ms: int
    leader_epoch: int = -1
    expire_timestamp_ms: int | None = None
    topic_id: UUID | None = None
    record_offset: int = field(default=-1, compare=False)

    def stored_at(self, record_offset: int) -> CommittedOffset:
        """Return the commit with its record's offset."""
        return CommittedOffset(
            offset=self.offset,
            metadata=self.metadata,
            commit_timestamp_ms=self.commit_timestamp_ms,
            leader_epoch=self.leader_epoch,
            expire_timestamp_ms=self.expire_timestamp_ms,
            topic_id=self.topic_id,
            record_offset=record_offset,
        )

    def counts_for(self, topic_id: UUID) -> bool:
        """Return whether this is a commit for the topic with this id, not for an earlier topic of that name."""
        return self.topic_id is None or self.topic_id == topic_id


class LatestCommits:
    """The latest commit of each group for each partition. Not thread-safe.

    The cost of each method depends only on the size of its result.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        #: The groups with commits for a topic; a dict keeps their order.
        self._groups_of: dict[str, dict[str, None]] = {}

    def put(self, group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        topic, number = partition
        of_group = self._by_group.setdefault(group_id, {})
        of_topic = of_group.get(topic)
        if of_topic is None:
            of_topic = of_group[topic] = {}
            self._groups_of.setdefault(topic, {})[group_id] = None
        of_topic[number] = committed

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Delete a commit, if any."""
        topic, number = partition
        of_group = self._by_group.get(group_id, {})
        of_topic = of_group.get(topic)
        if of_topic is None or of_topic.pop(number, None) is None or of_topic:
            return
        del of_group[topic]
        if not of_group:
            del self._by_group[group_id]
        groups = self._groups_of[topic]
        del groups[group_id]
        if not groups:
            del self._groups_of[topic]

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return the latest commit by topic name, even if it was for an earlier topic of that name."""
        topic, number = partition
        return self._by_group.get(group_id, {}).get(topic, {}).get(number)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's commits, grouped by topic."""
        return {
            TopicPartition(topic, number): committed
            for topic, of_topic in self._by_group.get(group_id, {}).items()
            for number, committed in of_topic.items()
        }

    def groups(self) -> list[str]:
        return list(self._by_group)

    def snapshot(self) -> dict[str, dict[str, dict[int, CommittedOffset]]]:
        """Return a copy of all commits by group, topic and partition."""
        return {
            group: {topic: dict(of_topic) for topic, of_topic in by_topic.items()}
            for group, by_topic in self._by_group.items()
        }

    def of_topic(self, topic: str) -> Iterator[tuple[str, TopicPartition]]:
        """Yield every (group, partition) with a commit for `topic`. Nothing may be changed during the iteration."""
        for group_id in self._groups_of.get(topic, ()):
            for number in self._by_group[group_id][topic]:
                yield group_id, TopicPartition(topic, number)


def is_expired(
    committed: CommittedOffset,
    *,
    age_since: AgeSince,
    group_empty_since_ms: int | None,
    now_ms: int,
    retention_ms: int,
) -> bool:
    """Return whether a commit has expired: by its own expiry if it has one, else by `offsets.retention.minutes`."""
    if age_since is AgeSince.NEVER:
        return False
    if committed.expire_timestamp_ms is not None:
        return now_ms >= committed.expire_timestamp_ms
    since_ms = committed.commit_timestamp_ms
    if age_since is AgeSince.GROUP_EMPTY and group_empty_since_ms is not None:
        since_ms = group_empty_since_ms
    return now_ms - since_ms >= retention_ms


def expired_partitions(
    commits: dict[TopicPartition, CommittedOffset],
    *,
    is_subscribed: Callable[[str], bool],
    age_since: AgeSince,
    group_empty_since_ms: int | None,
    now_ms: int,
    retention_ms: int,
) -> list[TopicPartition]:
    """Return the partitions whose commits have expired; never of topics that the group is subscribed to."""
    return [
        partition
        for partition, committed in commits.items()
        if not is_subscribed(partition.topic)
        and is_expired(
            committed,
            age_since=age_since,
            group_empty_since_ms=group_empty_since_ms,
            now_ms=now_ms,
            retention_ms=retention_ms,
        )
    ]
