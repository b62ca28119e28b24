"""Values of share groups (KIP-932), as in their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TypeAlias
from uuid import UUID

from stratalog.broker.groups.modern import JOIN_EPOCH, GroupEpoch, ModernChange, Target, TargetEpoch


class ShareGroupState(Enum):
    """The value is the name that clients get."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareSubscription:
    """A member's subscription; `topics` are names."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ShareAssignment:
    """A member's partitions. Members share partitions, so none has to revoke one for another.

    `state` is always that of a stable member; Kafka writes it nevertheless.
    """

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: int = 0
    assigned: Target = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    said: ShareSubscription = field(default_factory=ShareSubscription)
    current: ShareAssignment = field(default_factory=ShareAssignment)

    @property
    def epoch(self) -> int:
        return self.current.epoch


@dataclass(frozen=True, slots=True)
class StateTopic:
    """Partitions of a topic, with the name that it had when the record was written."""

    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Partitions of the group with a state at the share coordinator, by topic id.

    A partition is read once it is `initialized`; before, it is `initializing`. States of topics in `deleting` (with
    their names) are being deleted.
    """

    initializing: Mapping[UUID, StateTopic] = field(default_factory=dict)
    initialized: Mapping[UUID, StateTopic] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)


class ShareChangeKind(IntEnum):
    """The kind of a record. The numbers are the versions of the keys."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATE_PARTITIONS = 15


ShareChangeValue: TypeAlias = ShareSubscription | GroupEpoch | TargetEpoch | Target | ShareAssignment | StatePartitions


class ShareGroupChange(ModernChange[ShareChangeKind, ShareChangeValue]):
    __slots__ = ()


def share_removal(member_id: str) -> list[ShareGroupChange]:
    """Return the records that remove a member from its group."""
    kinds = (ShareChangeKind.CURRENT, ShareChangeKind.TARGET, ShareChangeKind.MEMBER)
    return [ShareGroupChange(kind, member_id) for kind in kinds]
