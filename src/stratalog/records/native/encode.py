"""Native loops of `columns_encode`: Arrow columns in raw memory to record batches in raw memory. No interpreter lock.

Importing this module loads the loops. The caller guarantees the columns (offsets within their data, one entry for each
row). Every write stays within the output of the `EncodeContext`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from stratalog.records.batch_format import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    PARTITION_LEADER_EPOCH_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    SEQUENCE_MAX,
)
from stratalog.records.native.crc32c import native_crc32c
from stratalog.records.native.dtype import Words
from stratalog.records.native.header_scan import batch_dtype as batch_dtype, batch_rows, read_header
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
    struct_at,
)


class BytesInput(Words):
    """A binary column: addresses of offsets (0: all null), data and validity bitmap (0: no nulls), and first bit."""

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = Words.of("offsets", "data", "valid", "bit")


class EncodeContext(Words):
    """The columns, the limits of batches, and the output.

    `offset` and `timestamp` are addresses of int64; without offsets they count up from `first_offset`. `sequence` is
    that of the next batch, -1 for none. `needed`, with ROOM: bytes that the first batch needs at least.
    """

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("key", BytesInput),
        ("value", BytesInput),
        ("header_key", BytesInput),
        ("header_value", BytesInput),
        #: A list column: no headers at all with offsets of 0; without data.
        ("headers", BytesInput),
        *Words.of("offset", "timestamp", "first_offset", "rows"),
        *Words.of("batch_bytes", "batch_records", "attributes", "leader_epoch", "producer_id", "producer_epoch"),
        *Words.of("sequence", "with_crc"),
        *Words.of("out", "out_size", "table", "table_rows", "batches", "status", "needed"),
    ]


_encoding: Any = struct_at(EncodeContext)

# --- why a loop stopped
DONE: Final = 0
ROOM: Final = 1
"""The next batch does not fit into what is left of output or table."""
DESCENDING: Final = 2
"""The row's offset is not after that of the row before."""
NULL_HEADER_KEY: Final = 3
NEGATIVE_TIMESTAMP: Final = 4
TOO_LARGE: Final = 5
"""The row alone is more than a batch can hold."""

_INT32_MAX: Final = 0x7FFF_FFFF
_SIZE_MAX: Final = 0x7FFF_FFFF - 64


@inlined
def _is_null(column: Any, row: int) -> bool:
    """Return whether the entry of a row is null by the column's bitmap."""
    if column.valid == 0:
        return False
    bit = column.bit + row
    is_set: bool = as_u8(column.valid)[bit >> 3] & (1 << (bit & 7)) != 0
    return not is_set


@inlined
def _size_of(column: Any, row: int) -> int:
    """Bytes of an entry of a binary column, -1 for null."""
    if column.offsets == 0 or _is_null(column, row):
        return -1
    offsets = as_i32(column.offsets)
    size: int = offsets[row + 1] - offsets[row]
    return size


@inlined
def _put_bytes(column: Any, row: int, size: int, at: int) -> int:
    """Write length and content of an entry of `size` bytes; return the address after it."""
    at = put_varint(at, size)
    if size > 0:
        copy_any(at, column.data + as_i32(column.offsets)[row], size)
        at += size
    return at


@inlined
def _headers_of(headers: Any, row: int) -> tuple[int, int]:
    """Return the entries of the header columns that are a row's: first and end."""
    if headers.offsets == 0 or _is_null(headers, row):
        return 0, 0
    offsets = as_i32(headers.offsets)
    return offsets[row], offsets[row + 1]


@native
def _headers_size(context: int, first: int, end: int) -> int:
    """Bytes of headers, without their count; -1 if a key is null."""
    c = _encoding(context, 0)
    total = 0
    for entry in range(first, end):
        key = _size_of(c.header_key, entry)
        if key < 0:
            return -1
        value = _size_of(c.header_value, entry)
        total += varint_size(key) + key + varint_size(value) + max(value, 0)
    return total


@native
def _put_headers(context: int, first: int, end: int, at: int) -> int:
    c = _encoding(context, 0)
    for entry in range(first, end):
        at = _put_bytes(c.header_key, entry, _size_of(c.header_key, entry), at)
        at = _put_bytes(c.header_value, entry, _size_of(c.header_value, entry), at)
    return at


@inlined
def _finish(context: int, start: int, end: int, first_row: int, row: int, max_timestamp: int) -> None:
    """Write the header of the batch of rows [first_row, row) in [start, end), and its row of the table."""
    c = _encoding(context, 0)
    offsets = as_i64(c.offset)
    if c.offset != 0:
        base, last = offsets[first_row], offsets[row - 1]
    else:
        base, last = c.first_offset + first_row, c.first_offset + row - 1
    at = c.out + start
    size = end - start
    store_be64(at + BASE_OFFSET_AT, base)
    store_be32(at + LENGTH_AT, size - LOG_OVERHEAD)
    store_be32(at + PARTITION_LEADER_EPOCH_AT, c.leader_epoch)
    as_u8(at)[MAGIC_AT] = MAGIC
    store_be16(at + ATTRIBUTES_AT, c.attributes)
    store_be32(at + LAST_OFFSET_DELTA_AT, last - base)
    store_be64(at + BASE_TIMESTAMP_AT, as_i64(c.timestamp)[first_row])
    store_be64(at + MAX_TIMESTAMP_AT, max_timestamp)
    store_be64(at + PRODUCER_ID_AT, c.producer_id)
    store_be16(at + PRODUCER_EPOCH_AT, c.producer_epoch)
    store_be32(at + BASE_SEQUENCE_AT, c.sequence)
    store_be32(at + RECORD_COUNT_AT, row - first_row)
    crc = 0
    if c.with_crc != 0:
        crc = native_crc32c(at + ATTRIBUTES_AT, size - ATTRIBUTES_AT)
    store_be32(at + CRC_AT, crc)
    made = batch_rows(c.table, c.batches)
    read_header(at, made)
    made.position = start
    made.is_sound = c.with_crc
    if c.sequence >= 0:
        c.sequence = (c.sequence + last - base + 1) & SEQUENCE_MAX
    c.batches += 1


@compiled("int64(int64, int64)")
def encode(context: int, row: int) -> int:  # noqa: C901
    """Write the batches of the rows from `row` on. Return the row where it stopped, and set the reason.

    A batch takes records while it stays within `batch_bytes` (header included, before compression) and `batch_records`,
    and at least one. With `ROOM` the result is the first row of the batch that did not fit, with an error the wrong
    row.
    """
    c = _encoding(context, 0)
    rows = c.rows
    batch_bytes = c.batch_bytes
    batch_records = c.batch_records
    out_size = c.out_size
    timestamps = as_i64(c.timestamp)
    offsets = as_i64(c.offset)
    with_offsets = c.offset != 0
    start = 0
    while row < rows:
        if c.batches >= c.table_rows:
            c.status = ROOM
            c.needed = 0
            return row
        first_row = row
        position = start + HEADER_SIZE
        base_timestamp = timestamps[row]
        base_offset = offsets[row] if with_offsets else 0
        last_offset = base_offset - 1
        max_timestamp = NO_TIMESTAMP
        while row < rows:
            timestamp = timestamps[row]
            if timestamp < NO_TIMESTAMP:
                c.status = NEGATIVE_TIMESTAMP
                return row
            offset_delta = row - first_row
            if with_offsets:
                if offsets[row] <= last_offset:
                    c.status = DESCENDING
                    return row
                last_offset = offsets[row]
                offset_delta = last_offset - base_offset
            timestamp_delta = timestamp - base_timestamp
            key = _size_of(c.key, row)
            value = _size_of(c.value, row)
            first, end = _headers_of(c.headers, row)
            headers = 0
            if end > first:
                headers = _headers_size(context, first, end)
                if headers < 0:
                    c.status = NULL_HEADER_KEY
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
                c.status = TOO_LARGE
                return row
            if row > first_row and (
                position + whole - start > batch_bytes or row - first_row >= batch_records or offset_delta > _INT32_MAX
            ):
                break
            if position + whole > out_size:
                c.status = ROOM
                c.needed = position + whole - start
                return first_row
            at = put_varint(c.out + position, body)
            as_u8(at)[0] = 0
            at = put_varint(at + 1, timestamp_delta)
            at = put_varint(at, offset_delta)
            at = _put_bytes(c.key, row, key, at)
            at = _put_bytes(c.value, row, value, at)
            at = put_varint(at, end - first)
            if end > first:
                at = _put_headers(context, first, end, at)
            position += whole
            max_timestamp = max(max_timestamp, timestamp)
            row += 1
        _finish(context, start, position, first_row, row, max_timestamp)
        start = position
    c.status = DONE
    return row
