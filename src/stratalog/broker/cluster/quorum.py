"""Which controller leads, as far as an observer knows: a table of addresses and an epoch, without any I/O.

Kafka's `UnattachedState` and `FollowerState`: unattached until an answer names the leader, then following it until it
is gone or another one is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

Address = tuple[str, int]

_NO_LEADER: Final = -1


class Quorum:
    """Belongs to the observer's thread; `leader` may be read by others.

    `bootstrap` are addresses of controllers, of which any may be gone; `voters` are those of
    `controller.quorum.voters`, by id, where the quorum is static.
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
        """Where the leader is reached; None as long as it is not known."""
        return self._known.get(self.leader_id)

    def address(self) -> Address:
        """Return whom to ask: the leader, or the controllers in turn."""
        candidates = dict.fromkeys((*self._known.values(), *self._bootstrap))
        return self.leader or list(candidates)[self._turn % len(candidates)]

    def lost(self) -> None:
        """Ask the next controller: the last one did not answer, or does not lead."""
        self.leader_id = _NO_LEADER
        self._turn += 1

    def know(self, addresses: Mapping[int, Address]) -> None:
        """Take in addresses of voters, from the log or from an answer."""
        self._known.update(addresses)

    def learn(self, leader_id: int, epoch: int) -> bool:
        """Take in what an answer says about the leader. Return whether that is news.

        An older epoch is no news, nor is an epoch without a leader beside the leader that is known in it.
        """
        if epoch < self.epoch or (epoch == self.epoch and leader_id in (_NO_LEADER, self.leader_id)):
            return False
        self.epoch, self.leader_id = epoch, leader_id
        return True


def voter_addresses(voters: Any, listener: str | None = None) -> dict[int, Address]:
    """Return the addresses in a VotersRecord by id: those of `listener`, or of the first that each voter has."""
    found: dict[int, Address] = {}
    for voter in voters.voters:
        endpoints = sorted(voter.endpoints, key=lambda each: listener is not None and each.name != listener)
        if endpoints:
            found[int(voter.voter_id)] = (endpoints[0].host, int(endpoints[0].port))
    return found
