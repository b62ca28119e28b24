"""The limits of one quota: which of the eight levels applies to a client, and which clients share a limit. Pure.

The most specific level wins: user and client id, user and default client id, user; default user and client id, default
user and default client id, default user; client id, default client id. The level determines which clients share a
limit: all client ids of a user share the user's.
Source: `ClientQuotaManager` of Kafka 4.4.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: The limit of a client without a quota.
UNLIMITED: Final = float(2**63 - 1)

#: User and client id of a level: None is the default, empty means that the level ignores it.
_Level = tuple[str | None, str | None]

_OF_CLIENTS, _OF_USERS, _OF_BOTH = 1, 2, 4


class SharedBy(NamedTuple):
    """The clients measured together: a user, a client id, both, or (all empty) all clients without either."""

    user: str
    client_id: str


class QuotaLevels:
    def __init__(self) -> None:
        self._limits: dict[_Level, float] = {}
        self._kinds = 0

    def __bool__(self) -> bool:
        return bool(self._limits)

    def set(self, user: str | None, client_id: str | None, limit: float | None) -> None:
        """Set the limit of a level; None removes it."""
        if limit is None:
            self._limits.pop((user, client_id), None)
        else:
            self._limits[user, client_id] = limit
        self._kinds = 0
        for has_user, has_client in ((each[0] != "", each[1] != "") for each in self._limits):
            self._kinds |= (_OF_BOTH if has_client else _OF_USERS) if has_user else _OF_CLIENTS

    def shared_by(self, user: str, client_id: str) -> SharedBy:
        """Return the group of clients with which a client is measured."""
        kinds = self._kinds
        if kinds in (0, _OF_CLIENTS):
            return SharedBy("", client_id)
        if kinds == _OF_USERS:
            return SharedBy(user, "")
        if kinds == _OF_BOTH:
            return SharedBy(user, client_id)
        limits = self._limits
        for name in (user, None):
            if (name, client_id) in limits or (name, None) in limits:
                return SharedBy(user, client_id)
            if (name, "") in limits:
                return SharedBy(user, "")
        return SharedBy("", client_id)

    def limit(self, shared_by: SharedBy) -> float:
        """Return the limit of clients that are measured together."""
        user, client_id = shared_by
        users = (user, None) if user else ("",)
        client_ids = (client_id, None) if client_id else ("",)
        for name in users:
            for each in client_ids:
                if (name, each) in self._limits:
                    return self._limits[name, each]
        return UNLIMITED
