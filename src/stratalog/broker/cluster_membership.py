"""The interface of a broker to its cluster. `broker/cluster` implements it; a single broker has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from stratalog.errors import KafkaError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    import asyncio

    from stratalog.broker.server import Registry, RequestContext
    from stratalog.broker.services import BrokerServices
    from stratalog.wire import ApiKey

#: Id, host, port and rack of brokers.
Nodes: TypeAlias = Sequence[tuple[int, str, int, str | None]]


class ClusterMembership(Protocol):
    """A broker's membership in a cluster. Thread-safe, except for `apis`."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def failure(self) -> Exception | None:
        """The error that ended the membership, if any."""
        ...

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """Lowest and highest level of each feature that this broker registers."""
        ...

    @property
    def served(self) -> Registry:
        """The last result of `apis`."""
        ...

    def apis(self, registry: Registry) -> Registry:
        """Return the APIs of a broker in a cluster, given those of a single broker."""
        ...

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return a partition's leader (-1: none) and leader epoch; None if it does not exist."""
        ...

    def endpoint(self, broker: int, listener: str) -> tuple[str, int, str | None] | None:
        """Return host, port and rack of a broker for a listener; None while it is not alive."""
        ...

    def ask(self, broker: int, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> asyncio.Future[Any]:
        """Send a request to another broker. Belongs to the loop's thread. UnreachableError or OSError."""
        ...

    def create_topics(self, ctx: RequestContext, topics: Sequence[Mapping[str, Any]]) -> asyncio.Future[dict[str, str]]:
        """Have the controllers create topics in a client's name, given as in CreateTopics.

        Return those that were not created, with reasons. Belongs to the loop's thread. Raises RequestTimedOutError,
        UnsupportedVersionError or UnknownServerError.
        """
        ...

    def secure(self, services: BrokerServices) -> None:
        """Apply access rules, users, tokens and quotas before the first client, and follow their changes."""
        ...

    def begin(self, services: BrokerServices) -> None:
        """Request to be unfenced, and wait for it up to a time limit: clients are served from now on.

        The other services follow the changes of the metadata from now on.
        """
        ...

    def leave(self) -> None:
        """Hand over leadership while clients are still served. Blocks."""
        ...

    def close(self, *, clean: bool) -> None: ...


def not_here(state: BrokerServices, topic: str, partition: int) -> KafkaError:
    """Return the error for a partition without a replica on this broker: others may have one."""
    if state.cluster is not None and state.cluster.leader(topic, partition) is not None:
        return NotLeaderOrFollowerError(f"{topic}-{partition} has no replica on this broker")
    return UnknownTopicOrPartitionError("This server does not host this topic-partition.")


def endpoints_of(cluster: ClusterMembership, brokers: Iterable[int], listener: str) -> Nodes:
    """Return the endpoints of those of `brokers` that are alive."""
    found = ((each, cluster.endpoint(each, listener)) for each in brokers)
    return [(each, *at) for each, at in found if at is not None]
