from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import UUID

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stratalog.engine.partition import OfflinePartition, Partition
from stratalog.engine.partition_table import PartitionTable
from stratalog.errors import KafkaStorageError

TOPICS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 3)
DIRECTORIES = [Path("/one"), Path("/two"), Path("/three")]


def partition(topic: str, number: int) -> Partition:
    return OfflinePartition(topic, number, UUID(int=1), KafkaStorageError("no disk"))


class TableAgainstModel(RuleBasedStateMachine):
    """After any changes the table answers as a dictionary of (partition, directory) that is walked whole."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PartitionTable()
        self.model: dict[tuple[str, int], tuple[Partition, Path | None]] = {}

    @rule(topic=TOPICS, number=NUMBERS, directory=st.sampled_from([*DIRECTORIES, None]))
    def put(self, topic: str, number: int, directory: Path | None) -> None:
        put = partition(topic, number)
        self.table.put(put, directory)
        self.model[topic, number] = (put, directory)

    @rule(topic=TOPICS)
    def pop_topic(self, topic: str) -> None:
        doomed = [key for key in self.model if key[0] == topic]
        expected = [self.model.pop(key)[0] for key in doomed]
        assert by_number(self.table.pop_topic(topic)) == by_number(expected)

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.model.clear()

    @invariant()
    def agrees(self) -> None:
        assert len(self.table) == len(self.model)
        assert set(map(id, self.table.all())) == {id(found) for found, _ in self.model.values()}
        in_order = [self.model[key][0] for key in sorted(self.model)]
        assert list(map(id, self.table.ordered())) == list(map(id, in_order))
        for topic in ("a", "b", "c"):
            assert by_number(self.table.of_topic(topic)) == by_number(
                [found for (name, _), (found, _) in self.model.items() if name == topic]
            )
            for number in range(4):
                assert self.table.get(topic, number) is self.model.get((topic, number), (None, None))[0]
        counts = Counter(directory for _, directory in self.model.values())
        for chosen in (DIRECTORIES, DIRECTORIES[1:], DIRECTORIES[:1]):
            assert self.table.emptiest_of(chosen) == min(chosen, key=lambda path: counts[path])


def by_number(partitions: list[Partition]) -> list[Partition]:
    return sorted(partitions, key=lambda found: found.partition)


def test_the_table_agrees_with_a_model() -> None:
    TableAgainstModel.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
    TableAgainstModel.TestCase("runTest").runTest()
