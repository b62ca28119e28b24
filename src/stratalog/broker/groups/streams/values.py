"""What a streams group (KIP-1071) is made of: small values, as its records hold them.

A task is a partition number of a subtopology. An active task has the epoch at which its member got it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TypeAlias

from stratalog.broker.groups.modern import JOIN_EPOCH, GroupEpoch, TargetEpoch

#: Of a topology, or of a description of one, that is not there.
NO_TOPOLOGY = -1

#: The numbers of tasks by subtopology.
TaskSets: TypeAlias = Mapping[str, frozenset[int]]
#: The same, each with the epoch at which its member got it.
TaskEpochs: TypeAlias = Mapping[str, Mapping[int, int]]


class TaskState(IntEnum):
    """How far a member is on its way to its target; the numbers are those of the records.

    STABLE             it has its epoch's tasks.
    UNREVOKED_TASKS    it has to give tasks up before it may go on to the next epoch.
    UNRELEASED_TASKS   it waits for tasks that others have not given up.
    UNKNOWN            a newer Kafka wrote a state that is not known here.
    """

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def of_record(cls, number: int) -> TaskState:
        return _STATES.get(number, cls.UNKNOWN)


_STATES = {state.value: state for state in TaskState}


class StreamsGroupState(Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic. 0 partitions or replicas: not said."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics that need as many partitions as each other: places in the lists of their subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of a topology whose tasks run by themselves."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def inputs(self) -> Iterator[str]:
        """Yield the names of all topics that its tasks read, but for changelogs."""
        yield from self.source_topics
        yield from (topic.name for topic in self.repartition_sources)


@dataclass(frozen=True, slots=True)
class StreamsTopology:
    """What an application reads, writes and keeps. Two are the same whatever the order of their subtopologies."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def by_id(self) -> dict[str, Subtopology]:
        return {each.subtopology_id: each for each in self.subtopologies}

    def is_same(self, other: StreamsTopology) -> bool:
        return self.epoch == other.epoch and self.by_id() == other.by_id()

    def required_topics(self) -> frozenset[str]:
        """Return the names of all topics that it cannot do without."""
        names = {name for each in self.subtopologies for name in each.inputs()}
        return frozenset(names | {topic.name for each in self.subtopologies for topic in each.changelogs})

    def source_owners(self) -> dict[str, str]:
        """Return the subtopology that reads each topic."""
        return {name: each.subtopology_id for each in self.subtopologies for name in each.inputs()}


@dataclass(frozen=True, slots=True)
class UserEndpoint:
    """Where others may ask an application for its state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of a member, by kind: to run, to keep a copy of, to warm up."""

    active: TaskSets = field(default_factory=dict)
    standby: TaskSets = field(default_factory=dict)
    warmup: TaskSets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Tasks that a member has, or has to give up."""

    active: TaskEpochs = field(default_factory=dict)
    standby: TaskSets = field(default_factory=dict)
    warmup: TaskSets = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """What a member says of itself."""

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
        """Return whether nothing differs that the tasks of a static member depend on."""
        return (self.topology_epoch, self.rack_id, self.tags, self.process_id) == (
            other.topology_epoch,
            other.rack_id,
            other.tags,
            other.process_id,
        )


@dataclass(frozen=True, slots=True)
class CurrentTasks:
    """What a member has, and what it has to give up before its next epoch."""

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
        """Return whether it has all that it is to have at an epoch."""
        return self.current.state is TaskState.STABLE and self.current.epoch == epoch

    def with_tasks(self, epoch: int, state: TaskState, assigned: HeldTasks, revoking: HeldTasks) -> StreamsMember:
        """Return the member after a step towards its target; the epoch before this one is remembered."""
        return replace(self, current=CurrentTasks(epoch, self.current.epoch, state, assigned, revoking))


@dataclass(frozen=True, slots=True)
class StreamsGroupEpoch(GroupEpoch):
    """The epoch of a group, and what it was raised for.

    `validated_topology` is the epoch of a topology whose topics are all there; `assignment_configs` are sorted, None
    in records of Kafka before 4.2. The last two are of a plug-in that is never here, and kept as they are read.
    """

    validated_topology: int = NO_TOPOLOGY
    assignment_configs: tuple[tuple[str, str], ...] | None = None
    stored_description: int = NO_TOPOLOGY
    failed_description: int = NO_TOPOLOGY


class StreamsChangeKind(IntEnum):
    """What a record is about. The numbers are the versions of the keys."""

    GROUP = 17
    MEMBER = 19
    TARGET_EPOCH = 20
    TARGET = 21
    CURRENT = 22
    TOPOLOGY = 23


StreamsChangeValue: TypeAlias = StreamsGroupEpoch | MemberFacts | TargetEpoch | Tasks | CurrentTasks | StreamsTopology


@dataclass(frozen=True, slots=True)
class StreamsGroupChange:
    """One record: a change of a group. No value takes away what it is about."""

    kind: StreamsChangeKind
    member_id: str = ""
    value: StreamsChangeValue | None = None


def facts_change(member: StreamsMember) -> StreamsGroupChange:
    return StreamsGroupChange(StreamsChangeKind.MEMBER, member.member_id, member.facts)


def tasks_change(member: StreamsMember) -> StreamsGroupChange:
    return StreamsGroupChange(StreamsChangeKind.CURRENT, member.member_id, member.current)


def target_tasks_change(member_id: str, target: Tasks) -> StreamsGroupChange:
    return StreamsGroupChange(StreamsChangeKind.TARGET, member_id, target)


def member_removal(member_id: str) -> list[StreamsGroupChange]:
    """Return what takes a member out of its group."""
    kinds = (StreamsChangeKind.CURRENT, StreamsChangeKind.TARGET, StreamsChangeKind.MEMBER)
    return [StreamsGroupChange(kind, member_id) for kind in kinds]
