"""What a broker is for one partition, and which news it takes in. Pure.

    NONE -> FOLLOWER <-> LEADER, LEADERLESS (no leader) -> REMOVED (deleted), OFFLINE (its directory failed)

Metadata with an older leader epoch or partition epoch is dropped, whatever way it came.
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
    """A role with the epochs of the metadata that gave it. Immutable."""

    role: Role = Role.NONE
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    #: Whether a reassignment brings this replica in.
    is_added: bool = False

    def after(self, assigned: AssignedReplicas, node_id: int) -> ReplicaRole | None:
        """Return the role that newer metadata gives; None: it is not newer, or nothing follows this role."""
        news = (assigned.leader_epoch, assigned.partition_epoch)
        if self.role in _ENDED or news[0] < self.leader_epoch or news[1] <= self.partition_epoch:
            return None
        role = Role.LEADERLESS if assigned.leader < 0 else Role.LEADER if assigned.leader == node_id else Role.FOLLOWER
        return ReplicaRole(role, assigned.leader, *news, is_added=node_id in assigned.adding_replicas)

    def ended(self, role: Role) -> ReplicaRole:
        """Return the role of a replica that is deleted, or whose directory failed."""
        return ReplicaRole(role, -1, self.leader_epoch, self.partition_epoch)
