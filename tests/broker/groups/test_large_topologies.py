"""Topologies of thousands of subtopologies: what Kafka's plain rounds decide is decided by one look at each."""

from __future__ import annotations

import random

import pytest

from stratalog.broker.groups.streams import configured_topology
from stratalog.broker.groups.streams.configured_topology import PartitionCounts, configure
from stratalog.broker.groups.streams.values import CopartitionGroup, InternalTopic, StreamsTopology, Subtopology
from stratalog.errors import InvalidStreamsTopologyError

SOURCES = {"one": 1, "three": 3, "eight": 8}


def in_rounds(parts: list[Subtopology], counts: dict[str, int], count: PartitionCounts) -> None:
    """Do as Kafka's `RepartitionTopics`: go through all subtopologies until nothing is found any more."""
    has_moved = True
    while has_moved:
        has_moved = False
        for part in parts:
            for sink in part.repartition_sinks:
                if sink in counts:
                    continue
                known = [counts.get(topic.name) for topic in part.repartition_sources]
                known += [count(name) for name in part.source_topics]
                found = max((each for each in known if each is not None), default=None)
                if found is not None:
                    counts[sink] = found
                    has_moved = True


def topology_of(rng: random.Random) -> StreamsTopology:
    names = [f"repartition-{number}" for number in range(rng.randint(1, 12))]
    parts = []
    for number in range(rng.randint(1, 12)):
        reads = rng.sample(names, rng.randint(0, min(3, len(names))))
        sources = [InternalTopic(name, rng.choice([0, 0, 0, 4])) for name in reads]
        parts.append(
            Subtopology(
                f"part-{number}",
                source_topics=tuple(rng.sample(sorted(SOURCES), rng.choice([0, 0, 1, 2]))),
                repartition_sources=tuple(sources),
                repartition_sinks=tuple(rng.sample(names, rng.randint(0, min(3, len(names))))),
            )
        )
    return StreamsTopology(1, tuple(parts))


@pytest.mark.parametrize("block", range(4))
def test_numbers_of_partitions_are_those_of_the_plain_rounds(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a subtopology reads topics of which some are not known when its turn comes, and in loops."""

    def decided(topology: StreamsTopology) -> object:
        try:
            return configure(topology, SOURCES.get)
        except Exception as error:
            return type(error), str(error)

    topologies = [topology_of(random.Random(1000 * block + seed)) for seed in range(400)]
    ours = [decided(topology) for topology in topologies]
    monkeypatch.setattr(configured_topology, "_spread_counts", in_rounds)
    assert ours == [decided(topology) for topology in topologies]
    assert len({isinstance(each, tuple) for each in ours}) == 2  # some are wrong, some are not


def chain(length: int, numbers: list[int]) -> StreamsTopology:
    """Return subtopologies each of which reads what the one before writes, under ids in some order."""
    return StreamsTopology(
        1,
        tuple(
            Subtopology(
                f"part-{numbers[place]}",
                source_topics=() if place else ("three",),
                repartition_sources=(InternalTopic(f"repartition-{place}"),) if place else (),
                repartition_sinks=(f"repartition-{place + 1}",) if place + 1 < length else (),
            )
            for place in range(length)
        ),
    )


def test_each_subtopology_of_a_long_chain_is_looked_at_twice_at_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = configured_topology._input_count

    def counted(*arguments: object) -> int | None:
        nonlocal looks
        looks += 1
        return look(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(configured_topology, "_input_count", counted)
    numbers = list(range(1000))
    random.Random(5).shuffle(numbers)
    configured = configure(chain(1000, numbers), SOURCES.get)
    assert configured.parts is not None
    assert {part.task_count for part in configured.parts.values()} == {3}
    assert looks <= 2 * 1000


def test_topics_that_ask_for_a_number_are_looked_up_once_for_all_groups_of_copartitions() -> None:
    asked: list[str] = []

    def existing(name: str) -> int | None:
        asked.append(name)
        return SOURCES.get(name)

    parts = [Subtopology("source", ("three",), repartition_sinks=tuple(f"r-{number}" for number in range(300)))]
    parts += [
        Subtopology(
            f"part-{number}",
            repartition_sources=(InternalTopic(f"r-{number}", 4),),
            copartition_groups=(CopartitionGroup(repartition_source_topics=(0,)),),
        )
        for number in range(300)
    ]
    configured = configure(StreamsTopology(1, tuple(parts)), existing)
    assert configured.parts is not None
    assert len(asked) < 20 * 300


def test_a_loop_that_no_round_resolves_is_refused() -> None:
    parts = (
        Subtopology("a", repartition_sources=(InternalTopic("x"),), repartition_sinks=("y",)),
        Subtopology("b", repartition_sources=(InternalTopic("y"),), repartition_sinks=("x",)),
    )
    with pytest.raises(InvalidStreamsTopologyError, match="There may be loops"):
        configure(StreamsTopology(1, parts), SOURCES.get)
