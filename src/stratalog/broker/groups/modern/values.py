"""Common values in records of the newer group types, and the interface of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

if TYPE_CHECKING:
    from stratalog.broker.metadata import Topic

#: The partitions of a target assignment, by topic id.
Target: TypeAlias = Mapping[UUID, tuple[int, ...]]

KindT = TypeVar("KindT", bound=IntEnum)
ValueT = TypeVar("ValueT")

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
#: A static member leaves temporarily.
LEAVE_STATIC_EPOCH = -2


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch of a group, and the hash of all topics that it is subscribed to."""

    epoch: int = 1
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The group epoch of the target, and its time (0: after a conversion, or when the group became empty)."""

    epoch: int
    timestamp_ms: int = 0

    def allows_next(self, interval_ms: int, now_ms: int) -> bool:
        """Return whether the interval between two assignments has passed."""
        return not self.timestamp_ms or not interval_ms or now_ms >= self.timestamp_ms + interval_ms


@dataclass(frozen=True, slots=True)
class ModernChange(Generic[KindT, ValueT]):
    """One record: a change of a group. `name` is a member id or a regular expression; no value means a tombstone."""

    kind: KindT
    name: str = ""
    value: ValueT | None = None


class TopicsView(Protocol):
    """The topics of the cluster. The versions grow with each change."""

    @property
    def topics_version(self) -> int: ...

    @property
    def new_topics_version(self) -> int: ...

    def topic(self, name: str) -> Topic | None: ...

    def topic_by_id(self, topic_id: UUID) -> Topic | None: ...

    def topics(self) -> list[Topic]: ...
