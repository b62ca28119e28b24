"""Share sessions (KIP-932): the broker remembers the partitions that a member of a share group fetches.

A member opens a session with epoch 0 and all partitions, continues with the next epoch and the partitions added or
forgotten, and closes it with epoch -1. A session ends with the connection that opened it.
Source: `ShareSessionCache`, `ShareSession` and `CachedSharePartition` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from stratalog.errors import (
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_INT_MAX: Final = 2**31 - 1


class SharePlace(NamedTuple):
    """A partition as in requests."""

    topic_id: UUID
    partition: int


@dataclass(slots=True)
class _KnownPartition:
    """`topic`: the name when the partition was added, None for an unknown id."""

    topic: str | None
    #: Whether the next response must include it, whatever the result is.
    is_due: bool


@dataclass(slots=True, eq=False)
class ShareSession:
    """The partitions that one member fetches from this broker; `epoch` is that of its next request."""

    group_id: str
    member_id: str
    connection: object
    epoch: int = INITIAL_EPOCH + 1
    #: In the order in which they are read.
    partitions: dict[SharePlace, _KnownPartition] = field(default_factory=dict)

    def update(self, added: Iterable[tuple[SharePlace, str | None]], forgotten: Iterable[SharePlace]) -> None:
        for place, topic in added:
            self.partitions.setdefault(place, _KnownPartition(topic, is_due=True))
        for place in forgotten:
            self.partitions.pop(place, None)

    def must_include(self, place: SharePlace, *, has_records: bool, is_error: bool) -> bool:
        """Note a result and return whether the response must include it. Partitions with records move to the end."""
        known = self.partitions.get(place)
        if known is None:  # forgotten since
            return has_records or is_error
        is_included = has_records or is_error or known.is_due
        known.is_due = is_error
        if has_records:
            self.partitions[place] = self.partitions.pop(place)
        return is_included


def next_epoch(epoch: int) -> int:
    """Return the next epoch; 1 follows the largest."""
    return 1 if epoch == _INT_MAX else epoch + 1


@dataclass(slots=True)
class _OpenedBy:
    """The last session that a connection opened; `is_stale` once one of its sessions was closed."""

    session: ShareSession
    is_stale: bool = False


class ShareSessionCache:
    """All share sessions of the broker, at most `slots`. Belongs to the loop's thread."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._members: Counter[str] = Counter()
        self._connections: dict[object, _OpenedBy] = {}
        #: Sessions that ended with their connections.
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def get(self, group_id: str, member_id: str) -> ShareSession:
        """Return the session of a member, or raise ShareSessionNotFoundError."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ShareSessionNotFoundError("The share session was not found.")
        return session

    def open(
        self, group_id: str, member_id: str, wanted: Iterable[tuple[SharePlace, str | None]], connection: object
    ) -> ShareSession:
        """Open a session, replacing an existing one. ShareSessionLimitReachedError when all slots are taken."""
        self.remove(group_id, member_id)
        if len(self._sessions) >= self._slots:
            raise ShareSessionLimitReachedError("The limit of share sessions has been reached.")
        session = ShareSession(group_id, member_id, connection)
        session.partitions = {place: _KnownPartition(topic, is_due=False) for place, topic in wanted}
        self._sessions[group_id, member_id] = session
        self._members[group_id] += 1
        self._connections[connection] = _OpenedBy(session)
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return a member's session for a request with the right epoch."""
        session = self.get(group_id, member_id)
        if session.epoch != epoch:
            raise InvalidShareSessionEpochError("The share session epoch is invalid.")
        session.epoch = next_epoch(epoch)
        return session

    def remove(self, group_id: str, member_id: str) -> ShareSession | None:
        """Close a session; a missing one is ignored."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            self._members[group_id] -= 1
            opened = self._connections.get(session.connection)
            if opened is not None:
                opened.is_stale = True
        return session

    def lost_with(self, connection: object) -> tuple[str, ShareSession | None] | None:
        """Return the group of a closed connection, and its session if that is still open."""
        opened = self._connections.pop(connection, None)
        if opened is None:
            return None
        session = opened.session
        is_open = not opened.is_stale and self._sessions.get((session.group_id, session.member_id)) is session
        self.evictions += is_open
        return session.group_id, session if is_open else None

    def has_members(self, group_id: str) -> bool:
        if self._members[group_id] > 0:
            return True
        del self._members[group_id]
        return False

    def clear(self) -> None:
        self._sessions.clear()
        self._members.clear()
