"""The leader of the controllers as an observer knows it: addresses and an epoch, without I/O.

Kafka's `UnattachedState` and `FollowerState`: unattached until a response names the leader, then following it until it
is lost or another one is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

Address = tuple[str, int]

_NO_LEADER: Final = -1


class Quorum:
    """Belongs to the observer's thread; other threads may read `leader`.

    `bootstrap` are addresses of controllers, some of which may be down; `voters` are those of
    `controller.quorum.voters`, by id, if the quorum is static.
    """

    def __init__(self, bootstrap: Iterable[Address], voters: Mapping[int, Address]) -> None:
        self._bootstrap = tuple(bootstrap)
        #: Addresses by id: from the configuration, the log, and answers.
        self._known: dict[int, Address] = dict(voters)
        self._turn = 0
        self.epoch = 0
        self.leader_id = _NO_LEADER

    @property
    def leader(self) -> Address | None:
        """The address of the leader; None while it is unknown."""
        return self._known.get(self.leader_id)

    def address(self) -> Address:
        """Return the address to fetch from: the leader, or the controllers in turn."""
        candidates = dict.fromkeys((*self._known.values(), *self._bootstrap))
        return self.leader or list(candidates)[self._turn % len(candidates)]

    def lost(self) -> None:
        """Switch to the next controller: the last one did not respond, or is not the leader."""
        self.leader_id = _NO_LEADER
        self._turn += 1

    def know(self, addresses: Mapping[int, Address]) -> None:
        """Add addresses of voters, from the log or from a response."""
        self._known.update(addresses)

    def learn(self, leader_id: int, epoch: int) -> bool:
        """Update the leader from a response. Return whether it has changed.

        An older epoch changes nothing, nor does a response without a leader if one is known in that epoch.
        """
        if epoch < self.epoch or (epoch == self.epoch and leader_id in (_NO_LEADER, self.leader_id)):
            return False
        self.epoch, self.leader_id = epoch, leader_id
        return True


def voter_addresses(voters: Any, listener: str | None = None) -> dict[int, Address]:
    """Return the addresses in a VotersRecord by id: those of `listener`, or each voter's first."""
    found: dict[int, Address] = {}
    for voter in voters.voters:
        endpoints = sorted(voter.endpoints, key=lambda each: listener is not None and each.name != listener)
        if endpoints:
            found[int(voter.voter_id)] = (endpoints[0].host, int(endpoints[0].port))
    return found
