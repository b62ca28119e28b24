"""What a broker of a cluster tells its engine about replicas, and what the engine asks back.

The broker follows the cluster's metadata and hands what changed for its own replicas to `LogManager.apply`: deletes,
then leaders, then followers, then directories. A broker without a cluster needs none of this.
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
    """A partition's replicas as the metadata has them, who leads it, and in which epochs. Immutable."""

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
        """The broker that leads, -1 for none."""
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
        """Return the directory that a replica is recorded in. Raises ValueError for a broker that holds none."""
        ...


def _none() -> Mapping[TopicIdPartition, AssignedReplicas]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChanges:
    """Changes of the replicas of one broker. A partition is in `leaders` or `followers`, never in both.

    By topic id: a topic that is deleted and made again under its name is another one. `followers` has also those that
    have no leader at present.
    """

    #: Replicas that are no longer here. Only this deletes: a directory that no metadata knows is a stray one.
    deletes: frozenset[TopicIdPartition] = frozenset()
    #: Those of `deletes` that were led here and whose topic is deleted: what they have in the remote tier goes too.
    remote_deletes: frozenset[TopicIdPartition] = frozenset()
    leaders: Mapping[TopicIdPartition, AssignedReplicas] = field(default_factory=_none)
    #: Those of `leaders` whose leader epoch is new; the others have another ISR, say.
    elected: frozenset[TopicIdPartition] = frozenset()
    followers: Mapping[TopicIdPartition, AssignedReplicas] = field(default_factory=_none)
    #: Where the metadata says that a replica lies, when that is new.
    directories: Mapping[TopicIdPartition, UUID] = field(default_factory=dict)


class ClusterView(Protocol):
    """The cluster as the engine asks about it. Thread-safe; answers at once, but for `ask_controller`."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; another one after it had to register again."""
        ...

    @property
    def connection(self) -> ConnectionOptions:
        """How the other brokers are reached."""
        ...

    def address(self, broker: int) -> tuple[str, int] | None:
        """Return where other brokers reach a broker; None for one that is not registered."""
        ...

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition; -1 when there is none, or no such partition."""
        ...

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic; None when there is no such topic."""
        ...

    def isr_epoch(self, broker: int) -> int | None:
        """Return the broker epoch of a broker that may be in sync; None while it is fenced or shuts down."""
        ...

    def log_config(self, topic: str) -> LogConfig:
        """Return the configuration that a topic has in the metadata."""
        ...

    def ask_controller(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        """Send a request to the controller that leads. Blocks. Raises UnreachableError when none answers."""
        ...
