"""The interface between a broker of a cluster and its engine for replicas.

The broker follows the cluster's metadata and passes changes of its own replicas to `LogManager.apply`: deletes, then
leaders, then followers, then directories. A broker without a cluster does not use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from stratalog.remote.api import TopicIdPartition

if TYPE_CHECKING:
    from stratalog.config import LogConfig
    from stratalog.wire import ApiKey
    from stratalog.wire.client import ConnectionOptions


class AssignedReplicas(Protocol):
    """A partition's replicas, leader and epochs in the metadata. Immutable."""

    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def adding_replicas(self) -> tuple[int, ...]: ...
    @property
    def removing_replicas(self) -> tuple[int, ...]: ...
    @property
    def leader(self) -> int:
        """The leading broker, or -1."""
        ...

    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def leader_recovery_state(self) -> int:
        """1 while the partition recovers from an unclean election."""
        ...

    def directory(self, broker: int) -> UUID:
        """Return the recorded directory of a replica. Raises ValueError for a broker without one."""
        ...


def _none() -> Mapping[TopicIdPartition, AssignedReplicas]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChanges:
    """Changes of the replicas of one broker. A partition is never in both `leaders` and `followers`.

    By topic id: a recreated topic is another one. `followers` includes those without a leader.
    """

    #: Replicas that were removed. Only this deletes: a directory of no known topic is stray.
    deletes: frozenset[TopicIdPartition] = frozenset()
    #: Those of `deletes` that were led here and whose topic is deleted: their remote data are deleted too.
    remote_deletes: frozenset[TopicIdPartition] = frozenset()
    leaders: Mapping[TopicIdPartition, AssignedReplicas] = field(default_factory=_none)
    #: Those of `leaders` with a new leader epoch; the others changed their ISR, for example.
    elected: frozenset[TopicIdPartition] = frozenset()
    followers: Mapping[TopicIdPartition, AssignedReplicas] = field(default_factory=_none)
    #: New directories of replicas.
    directories: Mapping[TopicIdPartition, UUID] = field(default_factory=dict)


class ClusterView(Protocol):
    """The engine's view of the cluster. Thread-safe. Returns at once, except for `ask_controller`."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration. It changes when the broker registers again."""
        ...

    @property
    def connection(self) -> ConnectionOptions:
        """Options of connections to other brokers."""
        ...

    def address(self, broker: int) -> tuple[str, int] | None:
        """Return the address of a broker for other brokers; None for an unregistered one."""
        ...

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition; -1 without one, or for an unknown partition."""
        ...

    def topic_id(self, topic: str) -> UUID | None: ...

    def isr_epoch(self, broker: int) -> int | None:
        """Return the epoch of a broker that may be in sync; None while it is fenced or shuts down."""
        ...

    def log_config(self, topic: str) -> LogConfig: ...

    def ask_controller(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        """Send a request to the active controller. Blocks. Raises UnreachableError."""
        ...
