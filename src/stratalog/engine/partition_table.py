"""The partitions of a broker by topic and number, and their number in each log directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from stratalog.engine.partition import Partition

PartitionKey = tuple[str, int]


class PartitionTable:
    """A table of partitions.

    The cost of every method but `all` and `ordered` depends only on its result.

    Any thread may call `get` and `leader_epochs`; callers serialise everything else.
    """

    def __init__(self) -> None:
        self._by_key: dict[PartitionKey, Partition] = {}
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._directories: dict[PartitionKey, Path] = {}
        self._counts: Counter[Path] = Counter()
        #: The result of `ordered`, None if outdated.
        self._ordered: list[Partition] | None = None

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, topic: str, number: int) -> Partition | None:
        return self._by_key.get((topic, number))

    def leader_epochs(self, topic: str, count: int) -> tuple[int, ...]:
        """Return the leader epochs of the first `count` partitions of a topic; -1 for one that is not led."""
        find = self._by_topic.get(topic, {}).get
        return tuple([-1 if (found := find(number)) is None else found.leader_epoch for number in range(count)])

    def all(self) -> list[Partition]:
        return list(self._by_key.values())

    def ordered(self) -> list[Partition]:
        """Return all by topic and number, sorted once after each change. Do not modify the list."""
        if self._ordered is None:
            self._ordered = [self._by_key[key] for key in sorted(self._by_key)]
        return self._ordered

    def of_topic(self, topic: str) -> list[Partition]:
        of_topic = self._by_topic.get(topic, {})
        return [of_topic[number] for number in sorted(of_topic)]

    def put(self, partition: Partition, directory: Path | None) -> None:
        """Add a partition, replacing one of the same name.

        It is in `directory` (None: its directory is offline).
        """
        key = partition.topic, partition.partition
        self._ordered = None
        self._leave_directory(key)
        self._by_key[key] = partition
        self._by_topic.setdefault(partition.topic, {})[partition.partition] = partition
        if directory is not None:
            self._directories[key] = directory
            self._counts[directory] += 1

    def pop_topic(self, topic: str) -> list[Partition]:
        found = self._by_topic.pop(topic, {})
        if found:
            self._ordered = None
        for number in found:
            del self._by_key[topic, number]
            self._leave_directory((topic, number))
        return list(found.values())

    def pop(self, topic: str, number: int) -> Partition | None:
        of_topic = self._by_topic.get(topic, {})
        found = of_topic.pop(number, None)
        if found is not None:
            self._ordered = None
            del self._by_key[topic, number]
            self._leave_directory((topic, number))
            if not of_topic:
                del self._by_topic[topic]
        return found

    def clear(self) -> None:
        self._ordered = None
        for held in (self._by_key, self._by_topic, self._directories, self._counts):
            held.clear()

    def emptiest_of(self, directories: Collection[Path]) -> Path:
        """Return the one of these directories with the fewest partitions; the first of several."""
        return min(directories, key=lambda path: self._counts[path])

    def _leave_directory(self, key: PartitionKey) -> None:
        directory = self._directories.pop(key, None)
        if directory is not None:
            self._counts[directory] -= 1
