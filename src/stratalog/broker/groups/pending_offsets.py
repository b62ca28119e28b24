"""Commits of open transactions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition


class PendingOffsets:
    """The latest commit for each partition, by producer and group, until the transaction ends. Not thread-safe."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        #: The same inner dictionaries by group and producer.
        self._by_group: dict[str, dict[int, dict[TopicPartition, CommittedOffset]]] = {}

    def put(self, producer_id: int, group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        groups = self._by_producer.setdefault(producer_id, {})
        commits = groups.get(group_id)
        if commits is None:
            commits = groups[group_id] = {}
            self._by_group.setdefault(group_id, {})[producer_id] = commits
        commits[partition] = committed

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Return whether an open transaction has a commit of the group for this partition."""
        return any(partition in commits for commits in self._by_group.get(group_id, {}).values())

    def has_group(self, group_id: str) -> bool:
        """Return whether an open transaction has any commit of the group."""
        return any(self._by_group.get(group_id, {}).values())

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions for which open transactions have commits of the group."""
        commits = self._by_group.get(group_id, {}).values()
        return list(dict.fromkeys(partition for of_producer in commits for partition in of_producer))

    def of_topic(self, topic: str) -> Iterator[tuple[str, TopicPartition]]:
        """Yield every (group, partition) with a pending commit for `topic`. Scans all pending commits."""
        for groups in self._by_producer.values():
            for group_id, commits in groups.items():
                for partition in commits:
                    if partition.topic == topic:
                        yield group_id, partition

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Delete the commits of all open transactions for a partition, if any."""
        for commits in self._by_group.get(group_id, {}).values():
            commits.pop(partition, None)

    def groups(self) -> list[str]:
        return list(self._by_group)

    def remove_group(self, group_id: str) -> None:
        """Delete the commits of all open transactions for a group, if any."""
        for producer_id in self._by_group.pop(group_id, {}):
            groups = self._by_producer[producer_id]
            del groups[group_id]
            if not groups:
                del self._by_producer[producer_id]

    def take(
        self, producer_id: int, belongs: Callable[[str], bool]
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Remove and return the commits of a producer's ended transaction, for groups that `belongs` selects."""
        groups = self._by_producer.get(producer_id, {})
        taken = {group_id: groups.pop(group_id) for group_id in list(groups) if belongs(group_id)}
        if not groups:
            self._by_producer.pop(producer_id, None)
        for group_id in taken:
            producers = self._by_group[group_id]
            del producers[producer_id]
            if not producers:
                del self._by_group[group_id]
        return taken
