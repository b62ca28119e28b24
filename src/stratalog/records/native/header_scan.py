"""The one native scan of batch headers: a window of bytes to rows of `BatchRow`. No interpreter lock.

Importing this module loads the loop, and not numpy: most loops that take parts of it do without. Reads stay within the
window, writes within the table.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from typing_extensions import Buffer

from stratalog.records.batch import RecordBatch
from stratalog.records.batch_format import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_AT,
    LEGACY_LENGTH_MIN,
    LENGTH_AT,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PARTITION_LEADER_EPOCH_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
)
from stratalog.records.native.crc32c import native_crc32c
from stratalog.records.native.dtype import BatchRow
from stratalog.records.native.toolkit import (
    as_u8,
    compiled,
    inlined,
    load_be16,
    load_be32,
    load_be64,
    struct_at,
)

batch_rows: Any = struct_at(BatchRow)

# --- why a scan ended, and what stands at its end
CUT: Final = 0
"""The window ends, or ends within a batch."""
NO_BATCH: Final = 1
"""Bytes that cannot be a batch."""
OLD_FORMAT: Final = 2
"""A message of format 0 or 1, which is left to the caller."""
BEHIND: Final = 3
"""A batch after those that are wanted."""

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1


@inlined
def check_header(at: int, size: int) -> tuple[int, int]:
    """Return CUT, NO_BATCH or OLD_FORMAT for an address with `size` bytes left, and the size of a whole batch or 0."""
    if size < HEADER_SIZE_UP_TO_MAGIC:
        return CUT, 0
    length = load_be32(at + LENGTH_AT)
    magic = as_u8(at)[MAGIC_AT]
    if length < LEGACY_LENGTH_MIN or magic > MAGIC or (magic == MAGIC and length < LENGTH_MIN):
        return NO_BATCH, 0
    if magic < MAGIC:
        return OLD_FORMAT, 0
    if length + LOG_OVERHEAD > size:
        return CUT, 0
    return CUT, length + LOG_OVERHEAD


@inlined
def read_header(at: int, row: Any) -> None:
    """Set the fields of a row to what the header at an address says; all but `position` and `is_sound`."""
    base_offset = load_be64(at + BASE_OFFSET_AT)
    size = load_be32(at + LENGTH_AT) + LOG_OVERHEAD
    row.size = size
    row.base_offset = base_offset
    row.last_offset = base_offset + load_be32(at + LAST_OFFSET_DELTA_AT)
    row.leader_epoch = load_be32(at + PARTITION_LEADER_EPOCH_AT)
    row.magic = as_u8(at)[MAGIC_AT]
    row.crc = load_be32(at + CRC_AT) & 0xFFFF_FFFF
    row.attributes = load_be16(at + ATTRIBUTES_AT)
    row.base_timestamp = load_be64(at + BASE_TIMESTAMP_AT)
    row.max_timestamp = load_be64(at + MAX_TIMESTAMP_AT)
    row.producer_id = load_be64(at + PRODUCER_ID_AT)
    row.producer_epoch = load_be16(at + PRODUCER_EPOCH_AT)
    row.base_sequence = load_be32(at + BASE_SEQUENCE_AT)
    row.record_count = load_be32(at + RECORD_COUNT_AT)
    row.payload = at + HEADER_SIZE
    row.payload_size = size - HEADER_SIZE


@inlined
def is_crc_right(at: int, row: Any) -> bool:
    """Return whether the batch at an address, whose header the row has, is as its CRC says."""
    found: bool = native_crc32c(at + ATTRIBUTES_AT, row.size - ATTRIBUTES_AT) == row.crc
    return found


@compiled("UniTuple(int64, 3)(int64, int64, int64, int64, int64, int64, int64)")
def scan(  # noqa: PLR0917
    address: int, size: int, start_offset: int, end_offset: int, with_crc: int, table: int, capacity: int
) -> tuple[int, int, int]:
    """Write a row for each whole batch of the window that holds offsets in [start_offset, end_offset).

    Return their number, the position where the scan ended, and why. With a capacity of 0 they are only counted.
    """
    count = 0
    position = 0
    while True:
        at = address + position
        status, whole = check_header(at, size - position)
        if whole == 0:
            return count, position, status
        base_offset = load_be64(at + BASE_OFFSET_AT)
        if base_offset >= end_offset or (capacity > 0 and count == capacity):
            return count, position, BEHIND
        if base_offset + load_be32(at + LAST_OFFSET_DELTA_AT) >= start_offset:
            if capacity > 0:
                row = batch_rows(table, count)
                read_header(at, row)
                row.position = position
                row.is_sound = -1
                if with_crc != 0:
                    row.is_sound = is_crc_right(at, row)
            count += 1
        position += whole


@cache
def batch_dtype() -> Any:
    """Return the type of the elements of a numpy table of batches."""
    import numpy as np  # start-up cost

    return np.dtype(BatchRow)


class HeaderScan(NamedTuple):
    """Rows of `batch_dtype`; the position where the scan ended, and why."""

    rows: Any
    end: int
    status: int


def scan_window(
    window: Buffer,
    start: int = 0,
    *,
    position: int = 0,
    start_offset: int = _INT64_MIN,
    end_offset: int = _INT64_MAX,
    with_crc: bool = False,
) -> HeaderScan:
    """Scan the bytes of a window from `start` on. It begins at `position` of what positions are of."""
    import numpy as np  # start-up cost

    held = np.frombuffer(memoryview(window), np.uint8)
    address, size = int(held.ctypes.data) + start, len(held) - start
    limits = start_offset, end_offset, with_crc
    # Counting first costs less than memory for as many rows as there may be.
    count, end, status = scan(address, size, *limits, 0, 0)
    rows = np.empty(count, batch_dtype())
    if count:
        count, end, status = scan(address, size, *limits, rows.ctypes.data, count)
    rows["position"] += position + start
    return HeaderScan(rows, position + start + end, status)


def row_of(batch: RecordBatch, position: int) -> Any:
    """Return a table with one row: the header of a batch of any format, at `position`, without payload."""
    import numpy as np  # start-up cost

    (base, length, epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp, *producer, count) = batch.header
    row = (position, length + LOG_OVERHEAD, base, base + delta, epoch, magic, crc, attributes, base_timestamp)
    return np.array([(*row, max_timestamp, *producer, count, -1, 0, 0)], batch_dtype())
