"""Native loops of `columns`: walk records in raw memory, write Arrow buffers. No interpreter lock.

Importing this module loads the loops. Every read stays within the payloads of the batches; every write within the
capacities that the context states (and `DATA_SLACK` bytes after them).

Rows of `header_scan` say where the batches are, and a `DecodeContext` where their records go.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from stratalog.records.batch_format import (
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    RECORD_SIZE_MIN,
    SEQUENCE_MAX,
)
from stratalog.records.native.dtype import Words
from stratalog.records.native.header_scan import batch_rows, is_crc_right
from stratalog.records.native.record import (
    MALFORMED_AT,
    copy,
    record_body,
    record_bounds,
    skip_headers,
    varint,
)
from stratalog.records.native.toolkit import as_i16, as_i32, as_i64, as_u8, compiled, inlined, native, struct_at


class Room(Words):
    """Elements that are used, and how many there is room for, in outputs that grow together."""

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = Words.of("used", "capacity")


class BytesColumn(Words):
    """The addresses of a column of variable length, 0 if it is not wanted; its nulls, and the room in its data."""

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = [*Words.of("offsets", "data", "valid", "nulls"), ("bytes", Room)]


class DecodeContext(Words):
    """The wanted range of offsets, and the addresses of the outputs, 0 for unwanted ones."""

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        *Words.of("start_offset", "end_offset", "verify_crc", "include_control"),
        *Words.of("offset", "timestamp", "timestamp_type", "producer_id", "producer_epoch", "sequence", "leader_epoch"),
        ("rows", Room),
        ("key", BytesColumn),
        ("value", BytesColumn),
        *Words.of("headers_offsets", "headers_valid", "headers_nulls"),
        ("headers", Room),
        ("header_key", BytesColumn),
        ("header_value", BytesColumn),
        *Words.of("not_ascii", "status"),
    ]


_columns: Any = struct_at(DecodeContext)

# --- why `run` stopped
DONE: Final = 0
FULL: Final = 1
COMPRESSED: Final = 2
CORRUPT: Final = 3
MALFORMED: Final = 4

UNLIMITED: Final = 1 << 62
"""The capacity of what no wanted output grows with."""
DATA_SLACK: Final = 64
"""Bytes that must be reserved after the data of every variable-length output: short copies run over."""
HEADER_BYTES_MIN: Final = 2
"""Bytes of the smallest record header: empty key, null value."""


@inlined
def _append(column: Any, row: int, at: int, size: int, source: int, readable: int) -> int:
    """Append one value, null if `size` is negative, as `row` of a column whose data ends `at`; return the new end."""
    valid = as_u8(column.valid)
    if row & 7 == 0:
        valid[row >> 3] = 0xFF
    if size < 0:
        valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
        column.nulls += 1
    else:
        copy(column.data + at, source, size, readable)
        at += size
    as_i32(column.offsets)[row + 1] = at
    return at


@inlined
def _set_bits(bits: Any, first: int, count: int, byte: int) -> None:
    """Set the bits from `first` on, at least `count` of them, to those of `byte`, which are all alike."""
    at = first >> 3
    before = (1 << (first & 7)) - 1
    if first & 7 != 0:
        bits[at] = (bits[at] & before) | (byte & ~before & 0xFF)
        at += 1
    for n in range(at, (first + count + 7) >> 3):
        bits[n] = byte


@inlined
def _begin(offsets: int) -> None:
    """Write the first offset of a variable-length column, if that is wanted."""
    if offsets != 0:
        as_i32(offsets)[0] = 0


@native
def _write_headers(context: int, address: int, position: int, end: int, count: int, payload_end: int) -> int:
    """Append `count` headers to the output; position after them, or -1."""
    c = _columns(context, 0)
    data = as_u8(address)
    row = c.headers.used
    if row == 0:
        as_i32(c.header_key.offsets)[0] = 0
        as_i32(c.header_value.offsets)[0] = 0
    key_at = c.header_key.bytes.used
    value_at = c.header_value.bytes.used
    for _ in range(count):
        size, position = varint(data, position, end, True)
        if position < 0 or size < 0 or size > end - position:
            return MALFORMED_AT
        high = 0
        for n in range(size):
            high |= data[position + n]
        if high >= 0x80:
            c.not_ascii = 1
        copy(c.header_key.data + key_at, address + position, size, payload_end - position)
        position += size
        key_at += size
        as_i32(c.header_key.offsets)[row + 1] = key_at
        size, position = varint(data, position, end, True)
        if position < 0 or size > end - position:
            return MALFORMED_AT
        value_at = _append(c.header_value, row, value_at, size, address + position, payload_end - position)
        position += max(size, 0)
        row += 1
    c.headers.used = row
    c.header_key.bytes.used = key_at
    c.header_value.bytes.used = value_at
    return position


@native
def _fill_constants(context: int, batch: Any, first: int, last: int) -> None:
    """Columns that have one value for the whole batch."""
    c = _columns(context, 0)
    if c.timestamp_type != 0:
        out32 = as_i32(c.timestamp_type)
        kind = 1 if batch.attributes & LOG_APPEND_TIME_BIT else 0
        for row in range(first, last):
            out32[row] = kind
    if c.producer_id != 0:
        out64 = as_i64(c.producer_id)
        producer_id = batch.producer_id
        for row in range(first, last):
            out64[row] = producer_id
    if c.producer_epoch != 0:
        out16 = as_i16(c.producer_epoch)
        producer_epoch = batch.producer_epoch
        for row in range(first, last):
            out16[row] = producer_epoch
    if c.leader_epoch != 0:
        out32 = as_i32(c.leader_epoch)
        leader_epoch = batch.leader_epoch
        for row in range(first, last):
            out32[row] = leader_epoch


@native
def _decode_batch(context: int, batch: Any) -> bool:  # noqa: C901
    c = _columns(context, 0)
    address = batch.payload
    payload_end = batch.payload_size
    count = batch.record_count
    base_offset = batch.base_offset
    append_time = batch.attributes & LOG_APPEND_TIME_BIT != 0
    base_timestamp = batch.max_timestamp if append_time else batch.base_timestamp
    base_sequence = batch.base_sequence
    start_offset = c.start_offset
    end_offset = c.end_offset
    want_offset = c.offset != 0
    want_timestamp = c.timestamp != 0
    want_sequence = c.sequence != 0
    want_key = c.key.offsets != 0
    want_value = c.value.offsets != 0
    want_headers = c.headers_offsets != 0
    offset_out = as_i64(c.offset)
    timestamp_out = as_i64(c.timestamp)
    sequence_out = as_i32(c.sequence)
    headers_offsets = as_i32(c.headers_offsets)
    headers_valid = as_u8(c.headers_valid)
    # In locals: a store to an output could otherwise change the address of the next one.
    key_offsets = as_i32(c.key.offsets)
    key_valid = as_u8(c.key.valid)
    key_data = c.key.data
    key_nulls = c.key.nulls
    value_offsets = as_i32(c.value.offsets)
    value_valid = as_u8(c.value.valid)
    value_data = c.value.data
    value_nulls = c.value.nulls
    headers_nulls = c.headers_nulls
    headers_used = c.headers.used
    first_row = c.rows.used
    row = first_row
    key_at = c.key.bytes.used
    value_at = c.value.bytes.used
    data = as_u8(address)
    if count < 0:
        return False
    if first_row == 0:
        _begin(c.key.offsets)
        _begin(c.value.offsets)
        _begin(c.headers_offsets)
    rows_max = min(count, payload_end // RECORD_SIZE_MIN)  # for which there is room, whatever the header claims
    if want_key:
        _set_bits(key_valid, first_row, rows_max, 0xFF)
    if want_value:
        _set_bits(value_valid, first_row, rows_max, 0xFF)
    if want_headers:
        _set_bits(headers_valid, first_row, rows_max, 0)
    position = 0
    damage = 0
    for _ in range(count):
        begin, end = record_bounds(data, position, payload_end)
        if begin < 0:
            return False
        (
            timestamp_delta,
            offset_delta,
            key_size,
            key_start,
            value_size,
            value_start,
            header_count,
            position,
        ) = record_body(data, begin, end, payload_end)
        if position < 0:
            return False
        offset = base_offset + offset_delta
        if offset < start_offset or offset >= end_offset:
            if header_count > 0:
                position = skip_headers(data, position, end, header_count)
            damage |= position ^ end
            position = end
            continue
        if want_offset:
            offset_out[row] = offset
        if want_timestamp:
            timestamp_out[row] = base_timestamp if append_time else base_timestamp + timestamp_delta
        if want_sequence:
            sequence = base_sequence
            if base_sequence >= 0:
                sequence += offset_delta
                if sequence > SEQUENCE_MAX:
                    sequence -= SEQUENCE_MAX + 1
            else:
                sequence = -1
            sequence_out[row] = sequence
        if want_key:
            if key_size < 0:
                key_valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                key_nulls += 1
            else:
                copy(key_data + key_at, address + key_start, key_size, payload_end - key_start)
                key_at += key_size
            key_offsets[row + 1] = key_at
        if want_value:
            if value_size < 0:
                value_valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                value_nulls += 1
            else:
                copy(value_data + value_at, address + value_start, value_size, payload_end - value_start)
                value_at += value_size
            value_offsets[row + 1] = value_at
        if want_headers:
            if header_count == 0:
                headers_nulls += 1
            else:
                headers_valid[row >> 3] |= 1 << (row & 7)
                position = _write_headers(context, address, position, end, header_count, payload_end)
                headers_used = c.headers.used
            headers_offsets[row + 1] = headers_used
        elif header_count > 0:
            position = skip_headers(data, position, end, header_count)
        # Not a branch: the next record's address would wait for this record's fields instead of its length alone.
        damage |= position ^ end
        position = end
        row += 1
    if damage != 0 or position != payload_end:
        return False
    c.rows.used = row
    c.key.bytes.used = key_at
    c.value.bytes.used = value_at
    c.key.nulls = key_nulls
    c.value.nulls = value_nulls
    c.headers_nulls = headers_nulls
    _fill_constants(context, batch, first_row, row)
    return True


@inlined
def _fits(room: Any, more: int) -> bool:
    fits: bool = room.used + more <= room.capacity
    return fits


@native
def _has_room(context: int, batch: Any) -> bool:
    """Return whether the outputs can hold whatever the batch holds."""
    c = _columns(context, 0)
    size = batch.payload_size
    return (
        _fits(c.rows, min(max(batch.record_count, 0), size // RECORD_SIZE_MIN))
        and _fits(c.key.bytes, size)
        and _fits(c.value.bytes, size)
        and _fits(c.headers, size // HEADER_BYTES_MIN)
        and _fits(c.header_key.bytes, size)
        and _fits(c.header_value.bytes, size)
    )


@compiled("int64(int64, int64, int64, int64, int64)")
def run(context: int, address: int, table: int, first: int, last: int) -> int:
    """Append the records of the batches [first, last) of `table`, whose positions count from `address`, to the output.

    Returns the index where it stopped, and sets the reason: DONE; FULL, the output may lack room for this batch;
    COMPRESSED, its CRC is right (set `payload` to the decompressed records, clear the codec); CORRUPT, its CRC is
    wrong; MALFORMED, its records are (and the output is invalid). Malformed is exactly what
    `record_format.parse_records` refuses, whatever columns are wanted.
    """
    c = _columns(context, 0)
    for index in range(first, last):
        batch = batch_rows(table, index)
        if c.verify_crc != 0 and batch.is_sound < 0:
            if not is_crc_right(address + batch.position, batch):
                c.status = CORRUPT
                return index
            batch.is_sound = 1
        if batch.attributes & CONTROL_BIT != 0 and c.include_control == 0:
            continue
        if batch.attributes & CODEC_MASK != 0:
            c.status = COMPRESSED
            return index
        if not _has_room(context, batch):
            c.status = FULL
            return index
        if not _decode_batch(context, batch):
            c.status = MALFORMED
            return index
    c.status = DONE
    return last
