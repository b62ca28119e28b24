"""The table of int64 by which Python and the native loops over a chunk of batches talk; the `X_` constants index it.

A chunk is a piece of a `.log` that begins with a batch, in memory. A loop goes on from `X_POSITION` batch by batch, and
stops in front of one that it leaves to Python, with the reason in `X_STATUS`.
"""

from __future__ import annotations

from typing import Final

# --- the chunk
X_CHUNK: Final = 0
"""Its address."""
X_SIZE: Final = 1
X_POSITION: Final = 2
X_STATUS: Final = 3
# --- what is being done
X_MAP: Final = 4
"""Address of the offset map's state."""
X_START_OFFSET: Final = 5
"""Keys of records below are not put into the map."""
X_MESSAGES_READ: Final = 6
# --- the filter alone
X_NOW_MS: Final = 7
X_NEW_HORIZON_MS: Final = 8
"""The delete horizon that a batch gets now, if it needs one."""
X_HIGH_WATERMARK: Final = 9
X_FLAGS: Final = 10
"""Address of one byte for each record of a batch: whether it stays."""
X_FLAGS_CAPACITY: Final = 11
X_OUT: Final = 12
"""Address of the output, batch behind batch."""
X_OUT_CAPACITY: Final = 13
X_OUT_SIZE: Final = 14
X_TABLE: Final = 15
"""Address of the rows that say what was put out, `ROW_WORDS` int64s each."""
X_TABLE_CAPACITY: Final = 16
X_TABLE_ROWS: Final = 17
X_BYTES_READ: Final = 18
X_MESSAGES_RETAINED: Final = 19
X_INVALID: Final = 20
# --- what `select` found in one batch
X_COUNT: Final = 21
X_RETAINED: Final = 22
X_HAS_TOMBSTONES: Final = 23
X_FIRST_TIMESTAMP: Final = 24
X_MAX_TIMESTAMP: Final = 25
X_KEYLESS: Final = 26
"""Records without a key that do not stay."""
# --- what the output knows of the segment that it goes to
X_INDEX_INTERVAL: Final = 27
X_SINCE_INDEX_ENTRY: Final = 28
"""Bytes since the batch of the last index entry; -1 before the first batch."""
CONTEXT_WORDS: Final = 29

# --- a row of the table
R_BASE_OFFSET: Final = 0
R_LAST_OFFSET: Final = 1
R_MAX_TIMESTAMP: Final = 2
R_SIZE: Final = 3
R_LEADER_EPOCH: Final = 4
ROW_WORDS: Final = 5

# --- why a loop stopped
DONE: Final = 0
"""No whole batch is left in the chunk."""
SPECIAL: Final = 1
"""This batch is transactional, a marker or compressed; or nothing of it stays, and it may have to."""
CORRUPT: Final = 2
"""The header cannot be one, or the CRC is wrong."""
MALFORMED: Final = 3
"""The CRC is right, but its records are none."""
MAP_FULL: Final = 4
OUT_FULL: Final = 5
"""The output, the table or the flags have no room for whatever may become of this batch."""
UNUSUAL: Final = 6
"""The records are not written as Kafka would write them, so they have to be written anew field by field."""

RECORD_GROWTH: Final = 13
"""Bytes by which a record may grow when its batch gets another base timestamp: its timestamp delta from 1 to 10, its
length accordingly."""
