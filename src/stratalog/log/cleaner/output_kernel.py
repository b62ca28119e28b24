"""Merge the facts that a segment needs of appended batches.

A segment processes each appended batch in Python. Only one batch in `index.interval.bytes` makes an index entry. The
largest timestamp and the sizes of the batches in between can be reported as those of one batch.
"""

from __future__ import annotations

from typing import Any

from stratalog.log.cleaner.chunk_kernel import context_at
from stratalog.log.cleaner.context import CleanedRow
from stratalog.records.native import compiled, struct_at

_rows: Any = struct_at(CleanedRow)


@compiled("void(int64)")
def merge_rows(context: int) -> None:
    """Merge rows of the table if that does not change the result of `LogSegment.append`.

    The first batch of a segment and each batch that gets an index entry keep their own rows. Consecutive others become
    one row, with their total size, the largest timestamp, and the last offset of the first batch that has it.
    """
    x = context_at(context, 0)
    interval = x.index_interval
    since = x.since_index_entry
    rows = 0
    may_merge = False
    for index in range(x.table_rows):
        row = _rows(x.table, index)
        is_single = since < 0 or since > interval
        if since < 0 or since > interval:
            since = 0
        since += row.size
        if may_merge and not is_single:
            merged = _rows(x.table, rows - 1)
            if row.max_timestamp > merged.max_timestamp:
                merged.max_timestamp = row.max_timestamp
                merged.last_offset = row.last_offset
            merged.size += row.size
            continue
        target = _rows(x.table, rows)
        target.base_offset = row.base_offset
        target.last_offset = row.last_offset
        target.max_timestamp = row.max_timestamp
        target.size = row.size
        target.leader_epoch = row.leader_epoch
        rows += 1
        may_merge = not is_single
    x.table_rows = rows
    x.since_index_entry = since
