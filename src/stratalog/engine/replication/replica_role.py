"""A broker's role for one partition, and which metadata change it. Pure.

    NONE -> FOLLOWER <-> LEADER, LEADERLESS (no leader) -> REMOVED (deleted), OFFLINE (its directory failed)

Metadata with an older leader epoch or partition epoch are ignored, whatever their source.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stratalog.engine.replica_changes import AssignedReplicas


class Role(Enum):
    NONE = auto()
    FOLLOWER = auto()
    LEADER = auto()
    LEADERLESS = auto()
    REMOVED = auto()
    OFFLINE = auto()


_ENDED: Final = frozenset({Role.REMOVED, Role.OFFLINE})


@dataclass(frozen=True, slots=True)
class ReplicaRole:
    """A role with the epochs of its metadata. Immutable."""

    role: Role = Role.NONE
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    #: Whether a reassignment adds this replica.
    is_added: bool = False

    def after(self, assigned: AssignedReplicas, node_id: int) -> ReplicaRole | None:
        """Return the role after newer metadata. None if they are not newer, or the role is final."""
        news = (assigned.leader_epoch, assigned.partition_epoch)
        if self.role in _ENDED or news[0] < self.leader_epoch or news[1] <= self.partition_epoch:
            return None
        role = Role.LEADERLESS if assigned.leader < 0 else Role.LEADER if assigned.leader == node_id else Role.FOLLOWER
        return ReplicaRole(role, assigned.leader, *news, is_added=node_id in assigned.adding_replicas)

    def ended(self, role: Role) -> ReplicaRole:
        """Return the role of a replica that is deleted, or whose directory failed."""
        return ReplicaRole(role, -1, self.leader_epoch, self.partition_epoch)
