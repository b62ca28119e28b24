"""What clients sent, were answered and saw, kept by all of them while they run; it notices at once what must not be.

Nothing of how a broker keeps anything is known here. A broken promise is a Violation.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from tests.torture.model import Violation

Where = tuple[str, int]


class Outcome(Enum):
    """How a transaction ended, as far as its producer can know."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    """Records of one transaction, of which all or none may be read."""

    number: int
    values: dict[Where, list[bytes]] = field(default_factory=dict)
    outcome: Outcome = Outcome.UNKNOWN


class Group:
    """A group's partitions: who owns them, what was delivered, and which commits were answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.read: dict[Where, dict[int, bytes]] = {}
        self._lock = threading.Lock()
        self._owners: dict[Where, str] = {}
        self._committed: dict[Where, int] = {}
        self._begins: dict[Where, int] = {}

    def assign(self, member: str, partitions: Iterable[Where]) -> None:
        with self._lock:
            for where in partitions:
                owner = self._owners.setdefault(where, member)
                if owner != member:
                    raise Violation(f"{self.name}: {where} is assigned to {member}, while {owner} has it")
                self._begins[where] = self._committed.get(where, 0)

    def revoke(self, member: str, partitions: Iterable[Where]) -> None:
        with self._lock:
            for where in partitions:
                if self._owners.get(where) == member:
                    del self._owners[where]

    def deliver(self, member: str, where: Where, offset: int, value: bytes) -> None:
        with self._lock:
            if self._owners.get(where) != member:
                raise Violation(f"{self.name}: {member} reads {where}, which is not its own")
            if offset < self._begins[where]:
                raise Violation(f"{self.name}: {where} begins at {offset}, {self._begins[where]} was committed")
            if self.read.setdefault(where, {}).setdefault(offset, value) != value:
                raise Violation(f"{self.name}: offset {offset} of {where} has two values")

    def commit(self, where: Where, offset: int) -> None:
        """A commit was answered without an error."""
        with self._lock:
            self._committed[where] = max(offset, self._committed.get(where, 0))

    def committed(self) -> dict[Where, int]:
        with self._lock:
            return dict(self._committed)


@dataclass
class History:
    """Of one story."""

    #: By partition: offset to value, of records without a transaction that were acknowledged.
    acknowledged: dict[Where, dict[int, bytes]] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, where: Where, offset: int, value: bytes) -> None:
        with self._lock:
            if self.acknowledged.setdefault(where, {}).setdefault(offset, value) != value:
                raise Violation(f"offset {offset} of {where} was given twice")

    def begin(self, number: int) -> Transaction:
        transaction = Transaction(number)
        with self._lock:
            self.transactions.append(transaction)
        return transaction

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number
