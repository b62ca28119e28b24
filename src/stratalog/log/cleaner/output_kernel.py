"""What a segment must be told of the batches that it gets: those that index entries are made for, and the others in
sums.

A segment looks at each batch that is appended, in Python. Only one in `index.interval.bytes` makes an entry; the
largest timestamp and the sizes of those in between can be told as of one batch.
"""

from __future__ import annotations

from stratalog.log.cleaner.context import (
    R_BASE_OFFSET,
    R_LAST_OFFSET,
    R_LEADER_EPOCH,
    R_MAX_TIMESTAMP,
    R_SIZE,
    ROW_WORDS,
    X_INDEX_INTERVAL,
    X_SINCE_INDEX_ENTRY,
    X_TABLE,
    X_TABLE_ROWS,
)
from stratalog.records.native import as_i64, compiled


@compiled("void(int64)")
def merge_rows(context: int) -> None:
    """Merge the rows of the table where `LogSegment.append` makes the same of them.

    The first batch of a segment and each batch that gets an index entry keep a row of their own. The others that follow
    one another become one row: with their size together, the largest timestamp, and the last offset of the first that
    has it.
    """
    x = as_i64(context)
    interval = x[X_INDEX_INTERVAL]
    since = x[X_SINCE_INDEX_ENTRY]
    rows = 0
    may_merge = False
    for index in range(x[X_TABLE_ROWS]):
        row = as_i64(x[X_TABLE] + index * (ROW_WORDS * 8))
        is_single = since < 0 or since > interval
        if since < 0 or since > interval:
            since = 0
        since += row[R_SIZE]
        if may_merge and not is_single:
            merged = as_i64(x[X_TABLE] + (rows - 1) * (ROW_WORDS * 8))
            if row[R_MAX_TIMESTAMP] > merged[R_MAX_TIMESTAMP]:
                merged[R_MAX_TIMESTAMP] = row[R_MAX_TIMESTAMP]
                merged[R_LAST_OFFSET] = row[R_LAST_OFFSET]
            merged[R_SIZE] += row[R_SIZE]
            continue
        target = as_i64(x[X_TABLE] + rows * (ROW_WORDS * 8))
        target[R_BASE_OFFSET] = row[R_BASE_OFFSET]
        target[R_LAST_OFFSET] = row[R_LAST_OFFSET]
        target[R_MAX_TIMESTAMP] = row[R_MAX_TIMESTAMP]
        target[R_SIZE] = row[R_SIZE]
        target[R_LEADER_EPOCH] = row[R_LEADER_EPOCH]
        rows += 1
        may_merge = not is_single
    x[X_TABLE_ROWS] = rows
    x[X_SINCE_INDEX_ENTRY] = since
