"""Track transactions during a cleaning: which data was aborted, and which markers have no data left.

The first cleaning that reads an aborted transaction's data removes it. A marker may be removed if no batch of its
transaction comes before it. It stays for delete.retention.ms longer, so that a consumer in the middle of the
transaction reads its end. Retained abort markers are added to the transaction index of the new segment. Source: Kafka's
`CleanedTransactionMetadata`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stratalog.log.index import AbortedTransaction
from stratalog.records import ControlType, RecordBatch, parse_control_key


@dataclass(frozen=True, slots=True)
class MetData:
    """Producers with data of an open transaction, by how it will end."""

    aborted: frozenset[int] = field(default_factory=frozenset)
    committed: frozenset[int] = field(default_factory=frozenset)


class CleanedTransactions:
    """See the module. Batches come in the order of the log; `retain` is called for each abort marker that must stay.

    A caller that begins within the log says what was `met` before.
    """

    def __init__(self, retain: Callable[[AbortedTransaction], None] | None = None, met: MetData | None = None) -> None:
        self.retain = retain
        #: By first offset: transactions whose data begins after the batches read so far.
        self._coming: list[tuple[int, int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        #: Producers in `_aborted` with a batch of their transaction so far.
        self._with_data: set[int] = set(met.aborted if met else ())
        self._committed: set[int] = set(met.committed if met else ())

    @property
    def met(self) -> MetData:
        """Producers with open transactions: those with data, and those that commit."""
        return MetData(frozenset(self._with_data), frozenset(self._committed))

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add transactions that overlap the next range. Adding one twice is harmless."""
        for transaction in transactions:
            heapq.heappush(self._coming, (transaction.first_offset, transaction.last_offset, transaction))

    def on_data(self, batch: RecordBatch) -> bool:
        """Return whether this batch, which is not a control batch, is part of an aborted transaction."""
        if not batch.is_transactional:
            return False
        self._begin_up_to(batch.last_offset)
        producer_id = batch.producer_id
        if producer_id in self._aborted:
            self._with_data.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def on_control(self, batch: RecordBatch) -> bool:
        """Return whether a control batch has no data left: it is empty, or its transaction has no batch.

        Raises InvalidRecordError for a control record with an invalid key.
        """
        self._begin_up_to(batch.last_offset)
        record = next(batch.records(), None)
        if record is None:
            return True
        producer_id = batch.producer_id
        kind = parse_control_key(record.key)
        if kind is ControlType.COMMIT:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data
        if kind is ControlType.ABORT:
            return self._end_aborted(producer_id)
        return False

    def _end_aborted(self, producer_id: int) -> bool:
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._with_data:
            return True
        self._with_data.discard(producer_id)
        if self.retain is not None:
            self.retain(transaction)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            transaction = heapq.heappop(self._coming)[2]
            self._aborted.setdefault(transaction.producer_id, transaction)
