"""The native loop of `batch_scan`: headers and CRCs of the batches in a window. No interpreter lock.

Importing this module loads numba and compiles the loops, or reads them from numba's cache. Reads stay within
[address, address + size), writes within `capacity` rows.
"""

from __future__ import annotations

from typing import Final

from stratalog.records.native import as_i64, as_u8, compiled, load_be16, load_be32, load_be64, native_crc32c

# --- words of a row
R_POSITION: Final = 0
R_BASE_OFFSET: Final = 1
R_LAST_OFFSET: Final = 2
R_SIZE: Final = 3
R_LEADER_EPOCH: Final = 4
R_ATTRIBUTES: Final = 5
R_MAX_TIMESTAMP: Final = 6
R_PRODUCER_ID: Final = 7
R_COUNT: Final = 8
R_IS_SOUND: Final = 9
R_MAGIC: Final = 10
ROW_WORDS: Final = 11

# --- words of the result
S_COUNT: Final = 0
S_END: Final = 1
S_STATUS: Final = 2
RESULT_WORDS: Final = 3

# --- why a scan ended
CUT: Final = 0
"""The window ends, or ends within a batch."""
NO_BATCH: Final = 1
"""What stands there can be no batch."""
OLD_FORMAT: Final = 2
"""A message of format 0 or 1, which is left to the caller."""

_LENGTH_MIN: Final = 49


@compiled("void(int64, int64, int64, int64, int64)")
def scan(address: int, size: int, rows: int, capacity: int, result: int) -> None:
    """A row for each whole batch from the start of the window on; result words `S_COUNT`, `S_END`, `S_STATUS`."""
    out = as_i64(result)
    count = 0
    position = 0
    status = CUT
    while size - position >= 17 and count < capacity:
        at = address + position
        length = load_be32(at + 8)
        magic = as_u8(at)[16]
        if magic < 2 and length >= 14:
            status = OLD_FORMAT
            break
        if magic != 2 or length < _LENGTH_MIN:
            status = NO_BATCH
            break
        whole = length + 12
        if whole > size - position:
            break
        row = as_i64(rows + count * (ROW_WORDS * 8))
        base_offset = load_be64(at)
        row[R_POSITION] = position
        row[R_BASE_OFFSET] = base_offset
        row[R_LAST_OFFSET] = base_offset + load_be32(at + 23)
        row[R_SIZE] = whole
        row[R_LEADER_EPOCH] = load_be32(at + 12)
        row[R_ATTRIBUTES] = load_be16(at + 21)
        row[R_MAX_TIMESTAMP] = load_be64(at + 35)
        row[R_PRODUCER_ID] = load_be64(at + 43)
        row[R_COUNT] = load_be32(at + 57)
        stored = load_be32(at + 17) & 0xFFFF_FFFF
        row[R_IS_SOUND] = 1 if native_crc32c(at + 21, whole - 21) == stored else 0
        row[R_MAGIC] = 2
        count += 1
        position += whole
    out[S_COUNT] = count
    out[S_END] = position
    out[S_STATUS] = status
