"""The partitions that a broker knows, by topic and number, and how many lie in each log directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from stratalog.engine.partition import Partition

PartitionKey = tuple[str, int]


class PartitionTable:
    """See the module.

    Every method but `all` and `ordered` costs as much as it returns, however many partitions there are.

    `get` and `leader_epochs` may be called by any thread; everything else under a lock of the caller's.
    """

    def __init__(self) -> None:
        self._by_key: dict[PartitionKey, Partition] = {}
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._directories: dict[PartitionKey, Path] = {}
        self._counts: Counter[Path] = Counter()
        #: What `ordered` gives; None when it has to be made.
        self._ordered: list[Partition] | None = None

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, topic: str, number: int) -> Partition | None:
        return self._by_key.get((topic, number))

    def leader_epochs(self, topic: str, count: int) -> tuple[int, ...]:
        """Return the epochs in which the first `count` partitions of a topic are led; -1 for one that is not."""
        find = self._by_topic.get(topic, {}).get
        return tuple([-1 if (found := find(number)) is None else found.leader_epoch for number in range(count)])

    def all(self) -> list[Partition]:
        return list(self._by_key.values())

    def ordered(self) -> list[Partition]:
        """Return all by topic and number, sorted once after each change; not for the caller to change."""
        if self._ordered is None:
            self._ordered = [self._by_key[key] for key in sorted(self._by_key)]
        return self._ordered

    def of_topic(self, topic: str) -> list[Partition]:
        """In order."""
        of_topic = self._by_topic.get(topic, {})
        return [of_topic[number] for number in sorted(of_topic)]

    def put(self, partition: Partition, directory: Path | None) -> None:
        """Take a partition in, in the place of one of its name.

        It lies in `directory` (None: its directory is offline).
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
        """Return the directory, of these, in which the fewest partitions lie; the first of several."""
        return min(directories, key=lambda path: self._counts[path])

    def _leave_directory(self, key: PartitionKey) -> None:
        directory = self._directories.pop(key, None)
        if directory is not None:
            self._counts[directory] -= 1
