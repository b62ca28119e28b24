"""A broker's place in a cluster, as the parts around it know it. `broker/cluster` has it; a broker alone has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stratalog.broker.quotas import ClientQuotas
    from stratalog.broker.security import ScramUsers
    from stratalog.broker.server import Registry


class ClusterMembership(Protocol):
    """A broker's place in a cluster, as what is around it needs to know it. Thread-safe but for `apis`."""

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

    def begin(self, scram: ScramUsers, quotas: ClientQuotas) -> None:
        """Ask to be unfenced: clients are answered from now on. Waits until it is so, or for some time."""
        ...

    def leave(self) -> None:
        """Hand leadership over while clients are still served. Blocks."""
        ...

    def close(self, *, clean: bool) -> None: ...
