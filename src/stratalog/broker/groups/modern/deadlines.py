"""Deadlines of group members, on the monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Timeout(Enum):
    """What a member has to do in time.

    SESSION    send a heartbeat.
    REBALANCE  revoke partitions.
    JOIN       rejoin (classic protocol only).
    SYNC       request its assignment (classic protocol only).
    """

    SESSION = auto()
    REBALANCE = auto()
    JOIN = auto()
    SYNC = auto()


@dataclass(frozen=True, slots=True)
class Deadline:
    """`epoch` is that of the member when it was set; a rebalance timeout applies only while it has not changed."""

    due_ms: int
    epoch: int


class MemberDeadlines:
    """The deadlines of a group's members. The cost of setting one does not depend on their number. Not thread-safe."""

    def __init__(self) -> None:
        self._of: dict[tuple[Timeout, str], Deadline] = {}
        self._bound_ms: int | None = None

    def set(self, timeout: Timeout, member_id: str, due_ms: int, epoch: int = 0) -> None:
        self._of[timeout, member_id] = Deadline(due_ms, epoch)
        if self._bound_ms is None or due_ms < self._bound_ms:
            self._bound_ms = due_ms

    def set_if_absent(self, timeout: Timeout, member_id: str, due_ms: int) -> None:
        if (timeout, member_id) not in self._of:
            self.set(timeout, member_id, due_ms)

    def cancel(self, timeout: Timeout, member_id: str) -> None:
        self._of.pop((timeout, member_id), None)

    def cancel_all(self, member_id: str) -> None:
        for timeout in Timeout:
            self.cancel(timeout, member_id)

    @property
    def next_ms(self) -> int | None:
        """A time before which nothing is due; None without deadlines. `take_due` makes it exact."""
        return self._bound_ms if self._of else None

    def take_due(self, now_ms: int) -> list[tuple[Timeout, str, Deadline]]:
        """Remove and return what is due, in the order in which it was set."""
        due = [(timeout, member_id, at) for (timeout, member_id), at in self._of.items() if at.due_ms <= now_ms]
        for timeout, member_id, _ in due:
            del self._of[timeout, member_id]
        self._bound_ms = min((at.due_ms for at in self._of.values()), default=None)
        return due
