"""Values of streams groups (KIP-1071), as in their records.

A task is a partition number of a subtopology. An active task has the epoch at which it was assigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TypeAlias

from stratalog.broker.groups.modern import JOIN_EPOCH, GroupEpoch, ModernChange, TargetEpoch

#: The epoch of a topology, or of its description, that does not exist.
NO_TOPOLOGY = -1

#: The numbers of tasks by subtopology.
TaskSets: TypeAlias = Mapping[str, frozenset[int]]
#: The same, each with the epoch at which it was assigned.
TaskEpochs: TypeAlias = Mapping[str, Mapping[int, int]]


class TaskState(IntEnum):
    """The reconciliation state of a member; the numbers are those of the records.

    STABLE             it has its epoch's tasks.
    UNREVOKED_TASKS    it has to revoke tasks before it may advance to the next epoch.
    UNRELEASED_TASKS   it waits for tasks that others have not released.
    UNKNOWN            a state written by a newer Kafka.
    """

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> TaskState:
        return cls.UNKNOWN


class StreamsGroupState(Enum):
    """The value is the name that clients get."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic. 0 partitions or replicas: unspecified."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics that need equal partition counts, as indexes into the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of a topology with its own tasks."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def inputs(self) -> Iterator[str]:
        """Yield the names of all topics that its tasks read, except changelogs."""
        yield from self.source_topics
        yield from (topic.name for topic in self.repartition_sources)


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """The topics that an application reads, writes and stores. The order of subtopologies does not matter."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def by_id(self) -> dict[str, Subtopology]:
        return {each.subtopology_id: each for each in self.subtopologies}

    def is_same(self, other: StreamsTopology) -> bool:
        return self.epoch == other.epoch and self.by_id() == other.by_id()

    def required_topics(self) -> frozenset[str]:
        """Return the names of all topics that must exist."""
        names = {name for each in self.subtopologies for name in each.inputs()}
        return frozenset(names | {topic.name for each in self.subtopologies for topic in each.changelogs})

    def source_owners(self) -> dict[str, str]:
        """Return the subtopology that reads each topic."""
        return {name: each.subtopology_id for each in self.subtopologies for name in each.inputs()}


@dataclass(frozen=True, slots=True)
class UserEndpoint:
    """The address at which other instances can query an application's state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of a member, by kind."""

    active: TaskSets = field(default_factory=dict)
    standby: TaskSets = field(default_factory=dict)
    warmup: TaskSets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Tasks that a member has, or has to revoke."""

    active: TaskEpochs = field(default_factory=dict)
    standby: TaskSets = field(default_factory=dict)
    warmup: TaskSets = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """The data that a member sends about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: UserEndpoint | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def weighs_as(self, other: MemberFacts) -> bool:
        """Return whether everything that a static member's tasks depend on is equal."""
        return (self.topology_epoch, self.rack_id, self.tags, self.process_id) == (
            other.topology_epoch,
            other.rack_id,
            other.tags,
            other.process_id,
        )


@dataclass(frozen=True, slots=True)
class CurrentTasks:
    """A member's tasks, and those that it has to revoke before its next epoch."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = 0
    state: TaskState = TaskState.STABLE
    assigned: HeldTasks = field(default_factory=HeldTasks)
    revoking: HeldTasks = field(default_factory=HeldTasks)


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member of a streams group: one thread of an application's process."""

    member_id: str
    facts: MemberFacts = field(default_factory=MemberFacts)
    current: CurrentTasks = field(default_factory=CurrentTasks)

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def instance_id(self) -> str | None:
        return self.facts.instance_id

    @property
    def process_id(self) -> str:
        return self.facts.process_id

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has all its tasks of an epoch."""
        return self.current.state is TaskState.STABLE and self.current.epoch == epoch

    def with_tasks(self, epoch: int, state: TaskState, assigned: HeldTasks, revoking: HeldTasks) -> StreamsMember:
        """Return the member after a step towards its target, with the current epoch as the previous one."""
        return replace(self, current=CurrentTasks(epoch, self.current.epoch, state, assigned, revoking))


@dataclass(frozen=True, slots=True)
class StreamsGroupEpoch(GroupEpoch):
    """The epoch of a group, and the reasons of its last increment.

    `validated_topology` is the epoch of a topology whose topics all exist; `assignment_configs` are sorted, None in
    records of Kafka before 4.2. The last two belong to a plug-in that does not exist here, and are preserved.
    """

    validated_topology: int = NO_TOPOLOGY
    assignment_configs: tuple[tuple[str, str], ...] | None = None
    stored_description: int = NO_TOPOLOGY
    failed_description: int = NO_TOPOLOGY


class StreamsChangeKind(IntEnum):
    """The kind of a record. The numbers are the versions of the keys."""

    GROUP = 17
    MEMBER = 19
    TARGET_EPOCH = 20
    TARGET = 21
    CURRENT = 22
    TOPOLOGY = 23


StreamsChangeValue: TypeAlias = StreamsGroupEpoch | MemberFacts | TargetEpoch | Tasks | CurrentTasks | StreamsTopology


class StreamsGroupChange(ModernChange[StreamsChangeKind, StreamsChangeValue]):
    __slots__ = ()


def facts_change(member: StreamsMember) -> StreamsGroupChange:
    return StreamsGroupChange(StreamsChangeKind.MEMBER, member.member_id, member.facts)


def tasks_change(member: StreamsMember) -> StreamsGroupChange:
    return StreamsGroupChange(StreamsChangeKind.CURRENT, member.member_id, member.current)


def target_tasks_change(member_id: str, target: Tasks) -> StreamsGroupChange:
    return StreamsGroupChange(StreamsChangeKind.TARGET, member_id, target)


def member_removal(member_id: str) -> list[StreamsGroupChange]:
    """Return the records that remove a member from its group."""
    kinds = (StreamsChangeKind.CURRENT, StreamsChangeKind.TARGET, StreamsChangeKind.MEMBER)
    return [StreamsGroupChange(kind, member_id) for kind in kinds]
