"""When open transactions time out, so that those that are due are found without a look at all ids."""

from __future__ import annotations

from collections.abc import Iterator

from stratalog.broker.transactions.states import TransactionState
from stratalog.broker.transactions.transaction import Transaction


class TransactionTimeouts:
    """The open transactions by the second in which they time out. Not thread-safe.

    A change costs the same however many there are; `due` costs as much as there are seconds and what it yields.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, int] = {}
        self._names: dict[int, dict[str, None]] = {}

    def note(self, transaction: Transaction) -> None:
        """Take in a step of a transaction: it has begun, goes on, or is open no more."""
        name = transaction.transactional_id
        if transaction.state is not TransactionState.ONGOING:
            self.forget(name)
            return
        second = (transaction.start_ms + transaction.timeout_ms) // 1000
        if self._seconds.get(name) != second:
            self.forget(name)
            self._seconds[name] = second
            self._names.setdefault(second, {})[name] = None

    def forget(self, transactional_id: str) -> None:
        """Harmless for an id without an open transaction."""
        second = self._seconds.pop(transactional_id, None)
        if second is None:
            return
        names = self._names[second]
        del names[transactional_id]
        if not names:
            del self._names[second]

    def due(self, now_ms: int) -> Iterator[str]:
        """Yield the ids whose transactions time out in the second of `now_ms` or before, the earliest first.

        There may be changes between two of them.
        """
        for second in sorted(second for second in self._names if second <= now_ms // 1000):
            yield from list(self._names.get(second, ()))
