"""The view of a cleaning on a log: segments and aborted transactions of a range of offsets."""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.log.cleaner.values import LastRecord
from stratalog.log.index import AbortedTransaction
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment import LogSegment, SegmentTable


def segments_between(segments: Sequence[LogSegment], start_offset: int, end_offset: int) -> list[LogSegment]:
    """Return the segments that may hold offsets from `start_offset` to `end_offset` (exclusive), in order."""
    if start_offset >= end_offset:
        return []
    row = SegmentTable(tuple(segments))
    return [segment for segment in row.from_offset(start_offset) if segment.base_offset < end_offset]


def aborted_transactions(log: PartitionLog, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap these offsets (the end is exclusive), and some that ended before.

    As Kafka does, read the index of the segment that holds `start_offset` from the log start. If a cleaning begins
    after the marker of such a transaction, the same producer's next one counts as aborted while the map is filled.
    Older records with its keys then stay until a later cleaning. No record is lost.
    """
    found: list[AbortedTransaction] = []
    for segment in SegmentTable(tuple(log.segments)).from_offset(start_offset):
        within = segment.txn_index.collect(log.log_start_offset, end_offset)
        found += within.transactions
        if within.is_complete:
            break
    return found


def last_records(log: PartitionLog) -> dict[int, LastRecord]:
    """Return what must be kept of each active producer, by producer id, as of now."""
    return {
        producer.producer_id: LastRecord(producer.last_offset, producer.epoch) for producer in log.active_producers()
    }
