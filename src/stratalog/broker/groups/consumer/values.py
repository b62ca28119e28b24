"""Values of consumer protocol groups (KIP-848), as in their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TypeAlias
from uuid import UUID

from stratalog.broker.groups.modern import JOIN_EPOCH, GroupEpoch, ModernChange, Target, TargetEpoch
from stratalog.broker.groups.values import Protocol

#: Partitions by topic id, each with the epoch at which it was assigned.
PartitionEpochs: TypeAlias = Mapping[UUID, Mapping[int, int]]

#: The epoch of an unassigned partition.
NO_EPOCH = -1


class MemberState(IntEnum):
    """The reconciliation state of a member; the numbers are those of the records.

    STABLE                 it has its epoch's assignment.
    UNREVOKED_PARTITIONS   it has to revoke partitions before it may advance to the next epoch.
    UNRELEASED_PARTITIONS  it waits for partitions that others have not released.
    UNKNOWN                a state written by a newer Kafka.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> MemberState:
        return cls.UNKNOWN


class ConsumerGroupState(Enum):
    """The value is the name that clients get."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ClassicFacts:
    """The stored data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's subscription. `regex` is "" for none; `topics` are names."""

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
    """A member's partitions, and those that it has to revoke before its next epoch."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=dict)
    revoking: PartitionEpochs = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a consumer protocol group."""

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
        """Return whether it has its complete assignment of an epoch."""
        return self.current.state is MemberState.STABLE and self.current.epoch == epoch

    def with_assignment(
        self, epoch: int, state: MemberState, assigned: PartitionEpochs, revoking: PartitionEpochs
    ) -> ConsumerMember:
        """Return the member after a step towards its target, with the current epoch as the previous one."""
        return replace(self, current=CurrentAssignment(epoch, self.current.epoch, state, assigned, revoking))


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched at a version of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OldPartitionMetadata:
    """Subscribed topics as Kafka 4.0 stored them; later versions only delete the record. It is not parsed."""


class ChangeKind(IntEnum):
    """The kind of a record. The numbers are the versions of the keys."""

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


class GroupChange(ModernChange[ChangeKind, ChangeValue]):
    """A record of a consumer group."""

    __slots__ = ()


def member_change(member: ConsumerMember) -> GroupChange:
    return GroupChange(ChangeKind.MEMBER, member.member_id, member.subscription)


def current_change(member: ConsumerMember) -> GroupChange:
    return GroupChange(ChangeKind.CURRENT, member.member_id, member.current)


def target_change(member_id: str, target: Target) -> GroupChange:
    return GroupChange(ChangeKind.TARGET, member_id, target)


def removal(member_id: str) -> list[GroupChange]:
    """Return the records that remove a member from its group."""
    return [GroupChange(kind, member_id) for kind in (ChangeKind.CURRENT, ChangeKind.TARGET, ChangeKind.MEMBER)]
