"""A broker's place in a cluster, as the parts around it know it. `broker/cluster` has it; a broker alone has none."""

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
    """A broker's place in a cluster, as what is around it needs to know it. Thread-safe but for `apis`."""

    @property
    def node_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def failure(self) -> Exception | None:
        """What ended the membership by itself, once it has."""
        ...

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """Lowest and highest level of each feature that this broker claims to serve."""
        ...

    @property
    def served(self) -> Registry:
        """What `apis` returned last."""
        ...

    def apis(self, registry: Registry) -> Registry:
        """Return what a broker of a cluster answers, out of what one by itself does."""
        ...

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return who leads a partition (-1: none) and in which epoch; None for one that does not exist."""
        ...

    def endpoint(self, broker: int, listener: str) -> tuple[str, int, str | None] | None:
        """Return host, port and rack at which a broker is reached by a listener; None while it is not alive."""
        ...

    def ask(self, broker: int, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> asyncio.Future[Any]:
        """Send a request to another broker. Belongs to the loop's thread. UnreachableError or OSError."""
        ...

    def create_topics(self, ctx: RequestContext, topics: Sequence[Mapping[str, Any]]) -> asyncio.Future[dict[str, str]]:
        """Have the controllers create topics in a client's name, given as CreateTopics has them.

        Return those that they do not create, with the reasons. Belongs to the loop's thread. RequestTimedOutError,
        UnsupportedVersionError or UnknownServerError.
        """
        ...

    def secure(self, services: BrokerServices) -> None:
        """Put access rules, users, tokens and quotas in force, before any client is let in.

        They hear of what the metadata changes from here on.
        """
        ...

    def begin(self, services: BrokerServices) -> None:
        """Ask to be unfenced: clients are answered from now on. Waits until it is so, or for some time.

        The other services hear of what the metadata changes from here on.
        """
        ...

    def leave(self) -> None:
        """Hand leadership over while clients are still served. Blocks."""
        ...

    def close(self, *, clean: bool) -> None: ...


def not_here(state: BrokerServices, topic: str, partition: int) -> KafkaError:
    """Return the error for a partition that has no replica on this broker: it may have some on others."""
    if state.cluster is not None and state.cluster.leader(topic, partition) is not None:
        return NotLeaderOrFollowerError(f"{topic}-{partition} has no replica on this broker")
    return UnknownTopicOrPartitionError("This server does not host this topic-partition.")


def endpoints_of(cluster: ClusterMembership, brokers: Iterable[int], listener: str) -> Nodes:
    """Return where those of `brokers` are reached that are alive."""
    found = ((each, cluster.endpoint(each, listener)) for each in brokers)
    return [(each, *at) for each, at in found if at is not None]
