"""What a group of the new protocol (KIP-848) is made of: small values, as its records hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TypeAlias
from uuid import UUID

from stratalog.broker.groups.modern import JOIN_EPOCH, GroupEpoch, Target, TargetEpoch
from stratalog.broker.groups.values import Protocol

#: Partitions by topic id, each with the epoch at which its member got it.
PartitionEpochs: TypeAlias = Mapping[UUID, Mapping[int, int]]

#: Of a partition that no member has.
NO_EPOCH = -1


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers are those of the records.

    STABLE                 it has its epoch's assignment.
    UNREVOKED_PARTITIONS   it has to give partitions up before it may go on to the next epoch.
    UNRELEASED_PARTITIONS  it waits for partitions that others have not given up.
    UNKNOWN                a newer Kafka wrote a state that is not known here.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of_record(cls, number: int) -> MemberState:
        return _STATES.get(number, cls.UNKNOWN)


_STATES = {state.value: state for state in MemberState}


class ConsumerGroupState(Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ClassicFacts:
    """What is kept of a member that speaks the classic protocol to a group of the new one."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member says of itself. `regex` is "" for none; `topics` are names."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicFacts | None = None


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member has, and what it has to give up before its next epoch."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=dict)
    revoking: PartitionEpochs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a group of the new protocol."""

    member_id: str
    subscription: MemberSubscription = field(default_factory=MemberSubscription)
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def instance_id(self) -> str | None:
        return self.subscription.instance_id

    @property
    def classic(self) -> ClassicFacts | None:
        return self.subscription.classic

    @property
    def uses_classic_protocol(self) -> bool:
        return self.subscription.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether it has all that it is to have at an epoch."""
        return self.current.state is MemberState.STABLE and self.current.epoch == epoch

    def with_assignment(
        self, epoch: int, state: MemberState, assigned: PartitionEpochs, revoking: PartitionEpochs
    ) -> ConsumerMember:
        """Return the member after a step towards its target; the epoch before this one is remembered."""
        return replace(self, current=CurrentAssignment(epoch, self.current.epoch, state, assigned, revoking))


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched at a version of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OldPartitionMetadata:
    """What Kafka 4.0 wrote of subscribed topics; later versions only remove it. It is not looked into."""


class ChangeKind(IntEnum):
    """What a record is about. The numbers are the versions of the keys."""

    GROUP = 3
    PARTITION_METADATA = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


ChangeValue: TypeAlias = (
    GroupEpoch | OldPartitionMetadata | MemberSubscription | TargetEpoch | Target | CurrentAssignment | ResolvedRegex
)


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One record: a change of a group. `name` is a member id or a regular expression; no value takes it away."""

    kind: ChangeKind
    name: str = ""
    value: ChangeValue | None = None


def member_change(member: ConsumerMember) -> GroupChange:
    return GroupChange(ChangeKind.MEMBER, member.member_id, member.subscription)


def current_change(member: ConsumerMember) -> GroupChange:
    return GroupChange(ChangeKind.CURRENT, member.member_id, member.current)


def target_change(member_id: str, target: Target) -> GroupChange:
    return GroupChange(ChangeKind.TARGET, member_id, target)


def removal(member_id: str) -> list[GroupChange]:
    """Return what takes a member out of its group."""
    return [GroupChange(kind, member_id) for kind in (ChangeKind.CURRENT, ChangeKind.TARGET, ChangeKind.MEMBER)]
