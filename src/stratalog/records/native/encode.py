"""Native loops of `columns_encode`: Arrow columns in raw memory to record batches in raw memory. No interpreter lock.

Importing this module loads numba and compiles the loops, or reads them from numba's cache. The caller vouches for the
columns (offsets within their data, one entry for each row); every write stays within the output that the context
states.

One context of int64, indexed by the `E_` constants, and one row of `ROW_WORDS` for each batch are the interface.
"""

from __future__ import annotations

from typing import Final

from stratalog.records.native.crc32c import native_crc32c
from stratalog.records.native.record import put_varint, varint_size
from stratalog.records.native.toolkit import (
    as_i32,
    as_i64,
    as_u8,
    compiled,
    copy_any,
    inlined,
    native,
    store_be16,
    store_be32,
    store_be64,
)

# --- columns. A binary column is four words: address of its offsets (0: all are null), of its data, of its validity
# bitmap (0: none is null), and the row's number in that bitmap
E_KEY: Final = 0
E_VALUE: Final = 4
E_HEADER_KEY: Final = 8
E_HEADER_VALUE: Final = 12
#: A list column: offsets (0: no headers at all), validity, number in the bitmap.
E_HEADERS: Final = 16
E_HEADERS_VALID: Final = 17
E_HEADERS_BIT: Final = 18
#: Addresses of int64: offsets (0: they count up from `E_FIRST_OFFSET`) and timestamps in milliseconds.
E_OFFSET: Final = 19
E_TIMESTAMP: Final = 20
E_FIRST_OFFSET: Final = 21
E_ROWS: Final = 22
# --- what batches are to be
E_BATCH_BYTES: Final = 23
E_BATCH_RECORDS: Final = 24
E_ATTRIBUTES: Final = 25
E_LEADER_EPOCH: Final = 26
E_PRODUCER_ID: Final = 27
E_PRODUCER_EPOCH: Final = 28
E_SEQUENCE: Final = 29
"""Of the next batch; -1 for none."""
E_WITH_CRC: Final = 30
# --- the output
E_OUT: Final = 31
E_OUT_SIZE: Final = 32
E_TABLE: Final = 33
E_TABLE_ROWS: Final = 34
E_BATCHES: Final = 35
"""Batches written."""
E_STATUS: Final = 36
E_NEEDED: Final = 37
"""With `ROOM`: bytes that the first batch needs at least, as far as it was looked at."""
CONTEXT_WORDS: Final = 38

# --- a row of the table
T_POSITION: Final = 0
T_SIZE: Final = 1
T_BASE_OFFSET: Final = 2
T_LAST_OFFSET: Final = 3
T_BASE_TIMESTAMP: Final = 4
T_MAX_TIMESTAMP: Final = 5
T_COUNT: Final = 6
T_SEQUENCE: Final = 7
ROW_WORDS: Final = 8

# --- why a loop stopped
DONE: Final = 0
ROOM: Final = 1
"""The next batch does not fit into what is left of output or table."""
DESCENDING: Final = 2
"""The row's offset does not lie behind that of the row before."""
NULL_HEADER_KEY: Final = 3
NEGATIVE_TIMESTAMP: Final = 4
TOO_LARGE: Final = 5
"""The row alone is more than a batch can hold."""

_HEADER_SIZE: Final = 61
_ATTRIBUTES_AT: Final = 21
_INT32_MAX: Final = 0x7FFF_FFFF
_SIZE_MAX: Final = 0x7FFF_FFFF - 64


@inlined
def _is_null(valid: int, bit: int) -> bool:
    """Whether the entry at `bit` of the bitmap at address `valid` is null."""
    if valid == 0:
        return False
    is_set: bool = as_u8(valid)[bit >> 3] & (1 << (bit & 7)) != 0
    return not is_set


@inlined
def _size_of(context: int, column: int, row: int) -> int:
    """Bytes of an entry of a binary column, -1 for null."""
    c = as_i64(context)
    if c[column] == 0 or _is_null(c[column + 2], c[column + 3] + row):
        return -1
    offsets = as_i32(c[column])
    size: int = offsets[row + 1] - offsets[row]
    return size


@inlined
def _put_bytes(context: int, column: int, row: int, size: int, at: int) -> int:
    """Write length and content of an entry of `size` bytes; the address behind it."""
    at = put_varint(at, size)
    if size > 0:
        c = as_i64(context)
        copy_any(at, c[column + 1] + as_i32(c[column])[row], size)
        at += size
    return at


@inlined
def _headers_of(context: int, row: int) -> tuple[int, int]:
    """The entries of the header columns that are a row's: first and end."""
    c = as_i64(context)
    if c[E_HEADERS] == 0 or _is_null(c[E_HEADERS_VALID], c[E_HEADERS_BIT] + row):
        return 0, 0
    offsets = as_i32(c[E_HEADERS])
    return offsets[row], offsets[row + 1]


@native
def _headers_size(context: int, first: int, end: int) -> int:
    """Bytes of headers, without their count; -1 if a key is null."""
    total = 0
    for entry in range(first, end):
        key = _size_of(context, E_HEADER_KEY, entry)
        if key < 0:
            return -1
        value = _size_of(context, E_HEADER_VALUE, entry)
        total += varint_size(key) + key + varint_size(value) + max(value, 0)
    return total


@native
def _put_headers(context: int, first: int, end: int, at: int) -> int:
    for entry in range(first, end):
        at = _put_bytes(context, E_HEADER_KEY, entry, _size_of(context, E_HEADER_KEY, entry), at)
        at = _put_bytes(context, E_HEADER_VALUE, entry, _size_of(context, E_HEADER_VALUE, entry), at)
    return at


@inlined
def _finish(context: int, start: int, end: int, first_row: int, row: int, max_timestamp: int) -> None:
    """Write the header of the batch of rows [first_row, row) in [start, end), and its row of the table."""
    c = as_i64(context)
    offsets = as_i64(c[E_OFFSET])
    if c[E_OFFSET] != 0:
        base, last = offsets[first_row], offsets[row - 1]
    else:
        base, last = c[E_FIRST_OFFSET] + first_row, c[E_FIRST_OFFSET] + row - 1
    base_timestamp = as_i64(c[E_TIMESTAMP])[first_row]
    at = c[E_OUT] + start
    size = end - start
    store_be64(at, base)
    store_be32(at + 8, size - 12)
    store_be32(at + 12, c[E_LEADER_EPOCH])
    as_u8(at)[16] = 2
    store_be16(at + _ATTRIBUTES_AT, c[E_ATTRIBUTES])
    store_be32(at + 23, last - base)
    store_be64(at + 27, base_timestamp)
    store_be64(at + 35, max_timestamp)
    store_be64(at + 43, c[E_PRODUCER_ID])
    store_be16(at + 51, c[E_PRODUCER_EPOCH])
    store_be32(at + 53, c[E_SEQUENCE])
    store_be32(at + 57, row - first_row)
    crc = 0
    if c[E_WITH_CRC] != 0:
        crc = native_crc32c(at + _ATTRIBUTES_AT, size - _ATTRIBUTES_AT)
    store_be32(at + 17, crc)
    table = as_i64(c[E_TABLE] + c[E_BATCHES] * (ROW_WORDS * 8))
    table[T_POSITION] = start
    table[T_SIZE] = size
    table[T_BASE_OFFSET] = base
    table[T_LAST_OFFSET] = last
    table[T_BASE_TIMESTAMP] = base_timestamp
    table[T_MAX_TIMESTAMP] = max_timestamp
    table[T_COUNT] = row - first_row
    table[T_SEQUENCE] = c[E_SEQUENCE]
    if c[E_SEQUENCE] >= 0:
        c[E_SEQUENCE] = (c[E_SEQUENCE] + last - base + 1) & _INT32_MAX
    c[E_BATCHES] += 1


@compiled("int64(int64, int64)")
def encode(context: int, row: int) -> int:
    """Write the batches of the rows from `row` on; return the row where it stopped, with the reason in the context.

    A batch takes records as long as it stays within `E_BATCH_BYTES` (header included, before compression) and
    `E_BATCH_RECORDS`, and one record at least. What is returned with `ROOM` is the first row of the batch that did not
    fit; with an error, the row that has it.
    """
    c = as_i64(context)
    rows = c[E_ROWS]
    batch_bytes = c[E_BATCH_BYTES]
    batch_records = c[E_BATCH_RECORDS]
    out_size = c[E_OUT_SIZE]
    timestamps = as_i64(c[E_TIMESTAMP])
    offsets = as_i64(c[E_OFFSET])
    with_offsets = c[E_OFFSET] != 0
    start = 0
    while row < rows:
        if c[E_BATCHES] >= c[E_TABLE_ROWS]:
            c[E_STATUS] = ROOM
            c[E_NEEDED] = 0
            return row
        first_row = row
        position = start + _HEADER_SIZE
        base_timestamp = timestamps[row]
        base_offset = offsets[row] if with_offsets else 0
        last_offset = base_offset - 1
        max_timestamp = -1
        while row < rows:
            timestamp = timestamps[row]
            if timestamp < -1:
                c[E_STATUS] = NEGATIVE_TIMESTAMP
                return row
            offset_delta = row - first_row
            if with_offsets:
                if offsets[row] <= last_offset:
                    c[E_STATUS] = DESCENDING
                    return row
                last_offset = offsets[row]
                offset_delta = last_offset - base_offset
            timestamp_delta = timestamp - base_timestamp
            key = _size_of(context, E_KEY, row)
            value = _size_of(context, E_VALUE, row)
            first, end = _headers_of(context, row)
            headers = 0
            if end > first:
                headers = _headers_size(context, first, end)
                if headers < 0:
                    c[E_STATUS] = NULL_HEADER_KEY
                    return row
            body = (
                1
                + varint_size(timestamp_delta)
                + varint_size(offset_delta)
                + varint_size(key)
                + max(key, 0)
                + varint_size(value)
                + max(value, 0)
                + varint_size(end - first)
                + headers
            )
            whole = body + varint_size(body)
            if whole > _SIZE_MAX:
                c[E_STATUS] = TOO_LARGE
                return row
            if row > first_row and (
                position + whole - start > batch_bytes or row - first_row >= batch_records or offset_delta > _INT32_MAX
            ):
                break
            if position + whole > out_size:
                c[E_STATUS] = ROOM
                c[E_NEEDED] = position + whole - start
                return first_row
            at = put_varint(c[E_OUT] + position, body)
            as_u8(at)[0] = 0
            at = put_varint(at + 1, timestamp_delta)
            at = put_varint(at, offset_delta)
            at = _put_bytes(context, E_KEY, row, key, at)
            at = _put_bytes(context, E_VALUE, row, value, at)
            at = put_varint(at, end - first)
            if end > first:
                at = _put_headers(context, first, end, at)
            position += whole
            max_timestamp = max(max_timestamp, timestamp)
            row += 1
        _finish(context, start, position, first_row, row, max_timestamp)
        start = position
    c[E_STATUS] = DONE
    return row
