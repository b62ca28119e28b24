"""Constant-cost sanity checks of a segment's indexes, run for every segment when a log is opened.

They check sizes, first and last entries, and whether the last entries match the batches they point to. This finds a
file of another kind or of another segment. `jobs.index.check` compares every entry with the log.
"""

from __future__ import annotations

from typing import Final

from stratalog.errors import CorruptIndexError
from stratalog.log.format import is_true_entry
from stratalog.log.index import AbortedTransaction
from stratalog.log.segment import LogSegment
from stratalog.records import CONTROL_BIT
from stratalog.util import FileSystem

#: Number of entries of a transaction index that are compared with the log.
_TRANSACTIONS_PROVED: Final = 64


def check_index_ends(segment: LogSegment, fs: FileSystem) -> None:
    """Raise CorruptIndexError for an index that is missing or implausible.

    Raises CorruptRecordError for damage in the log where an entry points.
    """
    for path in (segment.offset_index_path, segment.time_index_path):
        if not fs.exists(path):
            raise CorruptIndexError(f"{path}: missing")
    offsets, times, transactions = segment.offset_index, segment.time_index, segment.txn_index
    offsets.check_ends()
    times.check_ends()
    transactions.sanity_check()
    for transaction in transactions.all[-_TRANSACTIONS_PROVED:]:
        if not _is_true_abort(segment, transaction):
            raise CorruptIndexError(f"{transactions.path}: the log has no end of {transaction}")
    last = offsets.last_entry
    if offsets.entries and not is_true_entry(*last, segment.base_offset, segment.file, segment.size_bytes):
        raise CorruptIndexError(
            f"{offsets.path}: the last entry, {last}, points at no batch of the log with that offset"
        )
    largest = times.last_entry
    if times.entries and not segment.is_true_time(largest):
        raise CorruptIndexError(
            f"{times.path}: the last entry, {largest}, is not the timestamp of the batch with that offset"
        )


def _is_true_abort(segment: LogSegment, transaction: AbortedTransaction) -> bool:
    """Return whether the log has the producer's marker at the offset of a transaction index entry."""
    found = segment.translate_offset(transaction.last_offset)
    if found is None or not transaction.first_offset < transaction.last_offset:
        return False
    for _, header in segment.headers(found.position, found.position + found.size):
        is_marker = header[5] & CONTROL_BIT and header[9] == transaction.producer_id
        return bool(is_marker and header[0] == transaction.last_offset)
    return False
