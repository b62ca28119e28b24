"""A topology with the existing topics: its numbers of tasks, missing topics, and problems with partition counts.

Source: `InternalTopicManager`, `RepartitionTopics`, `CopartitionedTopicsEnforcer` and `ChangelogTopics` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from heapq import heappop, heappush

from stratalog.broker.groups.streams.values import InternalTopic, StreamsTopology, Subtopology
from stratalog.broker.java_hashing import in_hash_order, string_hash
from stratalog.errors import InvalidStreamsTopologyError, UnknownServerError

_SHOWN_MAX = 3
#: Returns the number of partitions of a topic, or None.
PartitionCounts = Callable[[str], int | None]


class StreamsStatus(IntEnum):
    """The status in a heartbeat response, in addition to its error code."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


@dataclass(frozen=True, slots=True)
class StatusDetail:
    """A status, with what a person may read."""

    status: StreamsStatus
    detail: str


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose internal topics have partition counts. `source` is what the application sent."""

    source: Subtopology
    task_count: int
    changelogs: tuple[InternalTopic, ...]
    repartition_sources: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """`parts` is by id in order, None while source topics are missing or invalid; `to_create` has missing topics."""

    epoch: int
    parts: Mapping[str, ConfiguredSubtopology] | None
    to_create: Mapping[str, InternalTopic] = field(default_factory=dict)
    problem: StatusDetail | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _ProblemError(Exception):
    """Ends the configuration of a topology that has a problem with its topics."""

    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.problem = StatusDetail(status, detail)


def configure(topology: StreamsTopology, existing: PartitionCounts) -> ConfiguredTopology:
    """Configure a topology. InvalidStreamsTopologyError for one that is invalid with any topics."""
    groups = {part.subtopology_id: _copartition_names(part) for part in topology.subtopologies}
    try:
        _check_sources(topology, existing)
        decided = _decide(topology, groups, existing)
        parts = {part_id: _configured(part, existing, decided) for part_id, part in sorted(topology.by_id().items())}
        missing = _missing(parts, topology, existing)
    except _ProblemError as error:
        return ConfiguredTopology(topology.epoch, None, problem=error.problem)
    problem = None
    if missing:
        names = _summary(list(missing))
        problem = StatusDetail(StreamsStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology.epoch, parts, missing, problem)


def _summary(names: list[str]) -> str:
    more = len(names) - _SHOWN_MAX
    return ", ".join(names[:_SHOWN_MAX]) + (f" and {more} additional topics" if more > 0 else "")


def _check_sources(topology: StreamsTopology, existing: PartitionCounts) -> None:
    missing = {name for part in topology.subtopologies for name in part.source_topics if existing(name) is None}
    if missing:
        names = _summary(sorted(missing))
        raise _ProblemError(StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {names} are missing.")


def _copartition_names(part: Subtopology) -> list[set[str]]:
    """Return the topics of each copartition group; UnknownServerError for an invalid index."""
    groups = []
    for group in part.copartition_groups:
        names: set[str] = set()
        for places, topics in (
            (group.source_topics, part.source_topics),
            (group.repartition_source_topics, [topic.name for topic in part.repartition_sources]),
        ):
            if not all(0 <= at < len(topics) for at in places):
                raise UnknownServerError
            names.update(topics[at] for at in places)
        groups.append(names)
    return groups


def _decide(
    topology: StreamsTopology, groups: Mapping[str, list[set[str]]], existing: PartitionCounts
) -> dict[str, int]:
    """Return the number of partitions of each internal topic."""
    by_id = topology.by_id()
    parts = [by_id[part_id] for part_id in in_hash_order(list(by_id), string_hash)]
    decided: dict[str, int] = {}

    def count(name: str) -> int | None:
        found = existing(name)
        return decided.get(name) if found is None else found

    decided.update(_repartition_counts(parts, count))
    sources = [topic for part in parts for topic in part.repartition_sources]
    fixed = {topic.name for topic in sources if topic.partitions}
    internal = {topic.name for topic in sources}
    fixed_counts = _FixedCounts(fixed, count)
    for part in parts:
        for names in groups[part.subtopology_id]:
            decided.update(_copartitioned(names, fixed_counts, internal, count))
    for part in parts:
        counts = [_known(count, name) for name in part.inputs()]
        if not counts:
            raise InvalidStreamsTopologyError(f"No source topics found for subtopology {part.subtopology_id}")
        decided.update(dict.fromkeys((topic.name for topic in part.changelogs), max(counts)))
    return decided


def _known(count: PartitionCounts, name: str) -> int:
    found = count(name)
    if found is None:
        raise UnknownServerError
    return found


class _FixedCounts:
    """Repartition topics with a fixed number of partitions, and these numbers, looked up once for all groups."""

    def __init__(self, names: set[str], count: PartitionCounts) -> None:
        self.names = names
        self._count = count
        self._numbers: set[int] | None = None

    @property
    def numbers(self) -> set[int]:
        if self._numbers is None:
            self._numbers = {_known(self._count, name) for name in self.names}
        return self._numbers


def _repartition_counts(parts: list[Subtopology], count: PartitionCounts) -> dict[str, int]:
    """Return the number of partitions of each repartition topic: its own, or else that of the upstream subtopology."""
    counts = {topic.name: topic.partitions for part in parts for topic in part.repartition_sources if topic.partitions}
    _spread_counts(parts, counts, count)
    if any(sink not in counts for part in parts for sink in part.repartition_sinks):
        raise InvalidStreamsTopologyError(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved."
        )
    if any(topic.name not in counts for part in parts for topic in part.repartition_sources):
        raise InvalidStreamsTopologyError(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
    return counts


def _spread_counts(parts: list[Subtopology], counts: dict[str, int], count: PartitionCounts) -> None:
    """Set the count of each repartition topic to the largest known count of the upstream subtopology's inputs.

    Kafka iterates over all subtopologies repeatedly, and a count applies from where it is found on. Here each is
    visited once, at the turn (round, position) at which Kafka finds it. The result is the same, even if a subtopology
    reads several topics of which some are unknown at that turn.
    """
    readers: dict[str, list[int]] = {}
    for place, part in enumerate(parts):
        for topic in part.repartition_sources:
            readers.setdefault(topic.name, []).append(place)
    turns = [(0, place) for place, part in enumerate(parts) if _input_count(part, counts, count) is not None]
    begun = {place for _, place in turns}
    while turns:
        turn, place = heappop(turns)
        part = parts[place]
        for sink in part.repartition_sinks:
            if sink in counts:
                continue
            found = _input_count(part, counts, count)
            assert found is not None
            counts[sink] = found
            for reader in readers.get(sink, ()):
                if reader not in begun:
                    begun.add(reader)
                    heappush(turns, (turn if reader > place else turn + 1, reader))


def _input_count(part: Subtopology, counts: Mapping[str, int], count: PartitionCounts) -> int | None:
    found = [counts.get(topic.name) for topic in part.repartition_sources]
    found += [count(name) for name in part.source_topics]
    return max((each for each in found if each is not None), default=None)


def _copartitioned(names: set[str], fixed: _FixedCounts, internal: set[str], count: PartitionCounts) -> dict[str, int]:
    """Return the common partition count of a group's repartition topics, or raise if there is none."""
    if not names:
        return {}
    counts = {name: _known(count, name) for name in names}
    repartition = {name: number for name, number in counts.items() if name in internal}
    others = {name: number for name, number in counts.items() if name not in internal}
    if others:
        wanted = _same(set(others.values()), others)
    elif fixed.names:
        wanted = _same(fixed.numbers, repartition)
    else:
        wanted = max(repartition.values())
        if not wanted:
            topics = ", ".join(in_hash_order(sorted(repartition), string_hash))
            raise InvalidStreamsTopologyError(
                f"All topics in the copartition group had undefined partition number: [{topics}]"
            )
    for name, number in repartition.items():
        if name in fixed.names and number != wanted:
            raise _ProblemError(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{number}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{wanted}] of the source topic.",
            )
    return dict.fromkeys(repartition, wanted)


def _same(numbers: set[int], named: Mapping[str, int]) -> int:
    if len(numbers) > 1:
        listed = ", ".join(f"{name}={number}" for name, number in sorted(named.items()))
        raise _ProblemError(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return next(iter(numbers))


def _configured(part: Subtopology, existing: PartitionCounts, decided: Mapping[str, int]) -> ConfiguredSubtopology:
    def count(name: str) -> int | None:
        found = existing(name)
        return decided.get(name) if found is None else found

    def sized(topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        found = tuple([replace(topic, partitions=topic.partitions or decided[topic.name]) for topic in topics])
        if any(topic.partitions < 1 for topic in found):
            raise UnknownServerError
        return found

    tasks = max(_known(count, name) for name in part.inputs())
    return ConfiguredSubtopology(part, tasks, sized(part.changelogs), sized(part.repartition_sources))


def _missing(
    parts: Mapping[str, ConfiguredSubtopology], topology: StreamsTopology, existing: PartitionCounts
) -> dict[str, InternalTopic]:
    """Return the internal topics that do not exist; raise for existing ones with a wrong partition count."""
    wanted: dict[str, InternalTopic] = {}
    for part in parts.values():
        wanted.update({topic.name: topic for topic in (*part.repartition_sources, *part.changelogs)})
    there = set()
    for name in in_hash_order(sorted(topology.required_topics()), string_hash):
        found, topic = existing(name), wanted.get(name)
        if found is None or topic is None:
            continue
        there.add(name)
        if found != topic.partitions:
            raise _ProblemError(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {found}",
            )
    return {name: wanted[name] for name in in_hash_order(list(wanted), string_hash) if name not in there}
