"""Decide whether to keep a batch as a whole. Pure except for the transactions, which it advances.

Source: Kafka's `Cleaner.cleanInto` (`checkBatchRetention`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.log.cleaner.transactions import CleanedTransactions
from stratalog.log.cleaner.values import LastRecord
from stratalog.records import RecordBatch


@dataclass(frozen=True, slots=True)
class BatchVerdict:
    """`discard`: all of its records are dropped. `keep_empty`: its header is kept even without records.

    `is_marker_of_nothing`: a marker whose transaction has no data left. It gets a delete horizon if it has none.
    """

    discard: bool
    keep_empty: bool
    is_marker_of_nothing: bool

    @property
    def is_deletion(self) -> bool:
        """Whether the batch is dropped without reading its records."""
        return self.discard and not self.keep_empty


def judge(
    batch: RecordBatch,
    transactions: CleanedTransactions,
    last_records: Mapping[int, LastRecord],
    *,
    high_watermark: int,
    now_ms: int,
) -> BatchVerdict:
    """Return the verdict on the next batch of the log.

    Data of aborted transactions is dropped, as is a marker without data whose delete horizon is over. Two headers are
    kept: that of the last batch of an active producer, which has its last sequence (or without data, that of its last
    marker, which has its epoch), and that of the last batch below the high watermark, which has the last offset.
    """
    if batch.is_control:
        is_marker_of_nothing = transactions.on_control(batch)
        horizon_ms = batch.delete_horizon_ms
        discard = is_marker_of_nothing and horizon_ms is not None and horizon_ms <= now_ms
    else:
        is_marker_of_nothing = False
        discard = transactions.on_data(batch)
    keep_empty = batch.next_offset == high_watermark or _is_last_of_producer(batch, last_records)
    return BatchVerdict(discard, keep_empty, is_marker_of_nothing)


def _is_last_of_producer(batch: RecordBatch, last_records: Mapping[int, LastRecord]) -> bool:
    last = last_records.get(batch.producer_id) if batch.has_producer_id else None
    if last is None:
        return False
    if last.last_data_offset >= 0:
        return batch.last_offset == last.last_data_offset
    return batch.is_control and batch.producer_epoch == last.producer_epoch
