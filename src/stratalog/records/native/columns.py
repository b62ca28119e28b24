"""Native loops of `columns`: walk batches and records in raw memory, write Arrow buffers. No interpreter lock.

Importing this module loads numba and compiles the loops, or reads them from numba's cache. Every read stays within
[address, address + size) of what was given; every write within the capacities that the context states (and `DATA_SLACK`
bytes behind).

Two flat tables of int64 are the interface: one row of `BATCH_WORDS` for each batch, and one context. The `B_` and `C_`
constants index them.
"""

from __future__ import annotations

from typing import Final

from stratalog.records.native.crc32c import native_crc32c
from stratalog.records.native.record import (
    MALFORMED_AT,
    OVERRUN,
    copy,
    record_fields,
    skip_headers,
    varint,
)
from stratalog.records.native.toolkit import (
    as_i16,
    as_i32,
    as_i64,
    as_u8,
    compiled,
    inlined,
    load_be16,
    load_be32,
    load_be64,
    native,
)

# --- the table of batches: what a header says, and where the decompressed records are
B_POSITION: Final = 0
B_SIZE: Final = 1
B_CRC: Final = 2
B_ATTRIBUTES: Final = 3
B_RECORD_COUNT: Final = 4
B_BASE_OFFSET: Final = 5
B_BASE_TIMESTAMP: Final = 6
B_MAX_TIMESTAMP: Final = 7
B_PRODUCER_ID: Final = 8
B_PRODUCER_EPOCH: Final = 9
B_BASE_SEQUENCE: Final = 10
B_LEADER_EPOCH: Final = 11
B_PAYLOAD: Final = 12
B_PAYLOAD_SIZE: Final = 13
BATCH_WORDS: Final = 14

# --- the context. First the six dimensions that outputs grow in: elements used, then room for how many in all
C_ROWS: Final = 0
C_KEY_SIZE: Final = 1
C_VALUE_SIZE: Final = 2
C_HEADERS: Final = 3
C_HEADER_KEY_SIZE: Final = 4
C_HEADER_VALUE_SIZE: Final = 5
DIMENSIONS: Final = 6
C_CAPACITY: Final = 6
# ... then what was met on the way
C_KEY_NULLS: Final = 12
C_VALUE_NULLS: Final = 13
C_HEADERS_NULLS: Final = 14
C_HEADER_VALUE_NULLS: Final = 15
C_NOT_ASCII: Final = 16
C_STATUS: Final = 17
# ... then what is wanted
C_START_OFFSET: Final = 18
C_END_OFFSET: Final = 19
C_VERIFY_CRC: Final = 20
C_INCLUDE_CONTROL: Final = 21
# ... then the address of each output, 0 for one that is not wanted
C_OFFSET: Final = 22
C_TIMESTAMP: Final = 23
C_TIMESTAMP_TYPE: Final = 24
C_PRODUCER_ID: Final = 25
C_PRODUCER_EPOCH: Final = 26
C_SEQUENCE: Final = 27
C_LEADER_EPOCH: Final = 28
C_KEY_OFFSETS: Final = 29
C_KEY_DATA: Final = 30
C_KEY_VALID: Final = 31
C_VALUE_OFFSETS: Final = 32
C_VALUE_DATA: Final = 33
C_VALUE_VALID: Final = 34
C_HEADERS_OFFSETS: Final = 35
C_HEADERS_VALID: Final = 36
C_HEADER_KEY_OFFSETS: Final = 37
C_HEADER_KEY_DATA: Final = 38
C_HEADER_VALUE_OFFSETS: Final = 39
C_HEADER_VALUE_DATA: Final = 40
C_HEADER_VALUE_VALID: Final = 41
CONTEXT_WORDS: Final = 42

# --- why `run` stopped
DONE: Final = 0
FULL: Final = 1
COMPRESSED: Final = 2
CORRUPT: Final = 3
MALFORMED: Final = 4

CRC_VERIFIED: Final = -1
"""In `B_CRC`: not to be checked again."""
UNLIMITED: Final = 1 << 62
"""The capacity of a dimension that no wanted output grows in."""

DATA_SLACK: Final = 64
"""Bytes that must be reserved behind the data of every variable-length output: short copies run over."""

# --- what `scan` returns in its result words
S_COUNT: Final = 0
S_BAD_POSITION: Final = 1
S_ROWS_MAX: Final = 2
S_PAYLOAD_SIZE: Final = 3
SCAN_WORDS: Final = 4

_HEADER_SIZE = 61
_RECORD_SIZE_MIN = 7
_ATTRIBUTES_AT = 21
_CODEC_MASK = 0x07
_CONTROL_BIT = 0x20
_HEADER_BYTES_MIN = 2


@compiled("void(int64, int64, int64, int64, int64, int64, int64)")
def scan(address: int, size: int, start_offset: int, end_offset: int, table: int, capacity: int, result: int) -> None:
    """List the complete batches that hold offsets in [start_offset, end_offset) in `table` (at most `capacity` of them;
    with 0 they are only counted).

    Result words: number of batches; position of a header that cannot be one, or -1; upper bounds of the records and of
    their bytes as they lie there. Stops at the first batch that begins at or after `end_offset`.
    """
    out = as_i64(result)
    count = 0
    rows_max = 0
    payload_total = 0
    out[S_BAD_POSITION] = -1
    position = 0
    while size - position >= 17:
        at = address + position
        length = load_be32(at + 8)
        if length < 49 or as_u8(at)[16] != 2:
            out[S_BAD_POSITION] = position
            break
        whole = length + 12
        if whole > size - position:
            break
        base_offset = load_be64(at)
        if base_offset >= end_offset:
            break
        if base_offset + load_be32(at + 23) >= start_offset:
            record_count = load_be32(at + 57)
            payload_size = whole - _HEADER_SIZE
            if count < capacity:
                row = as_i64(table + count * (BATCH_WORDS * 8))
                row[B_POSITION] = position
                row[B_SIZE] = whole
                row[B_CRC] = load_be32(at + 17) & 0xFFFF_FFFF
                row[B_ATTRIBUTES] = load_be16(at + 21)
                row[B_BASE_OFFSET] = base_offset
                row[B_BASE_TIMESTAMP] = load_be64(at + 27)
                row[B_MAX_TIMESTAMP] = load_be64(at + 35)
                row[B_PRODUCER_ID] = load_be64(at + 43)
                row[B_PRODUCER_EPOCH] = load_be16(at + 51)
                row[B_BASE_SEQUENCE] = load_be32(at + 53)
                row[B_LEADER_EPOCH] = load_be32(at + 12)
                row[B_RECORD_COUNT] = record_count
                row[B_PAYLOAD] = at + _HEADER_SIZE
                row[B_PAYLOAD_SIZE] = payload_size
            count += 1
            rows_max += min(max(record_count, 0), payload_size // _RECORD_SIZE_MIN)
            payload_total += payload_size
        position += whole
    out[S_COUNT] = count
    out[S_ROWS_MAX] = rows_max
    out[S_PAYLOAD_SIZE] = payload_total


@inlined
def _append(
    context: int, offsets_word: int, nulls_word: int, row: int, at: int, size: int, source: int, readable: int
) -> int:
    """Append one value, null if `size` is negative, as `row` of a variable-length column whose data ends `at`; return
    the new end. Addresses of offsets, data and validity stand in this order in the context.
    """
    c = as_i64(context)
    valid = as_u8(c[offsets_word + 2])
    if row & 7 == 0:
        valid[row >> 3] = 0xFF
    if size < 0:
        valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
        c[nulls_word] += 1
    else:
        copy(c[offsets_word + 1] + at, source, size, readable)
        at += size
    as_i32(c[offsets_word])[row + 1] = at
    return at


@inlined
def _begin(context: int, offsets_word: int) -> None:
    """The first offset of a variable-length column, if that is wanted."""
    c = as_i64(context)
    if c[offsets_word] != 0:
        as_i32(c[offsets_word])[0] = 0


@native
def _write_headers(context: int, address: int, position: int, end: int, count: int, payload_end: int) -> int:
    """Append `count` headers to the output; position after them, or -1."""
    c = as_i64(context)
    data = as_u8(address)
    row = c[C_HEADERS]
    if row == 0:
        as_i32(c[C_HEADER_KEY_OFFSETS])[0] = 0
        as_i32(c[C_HEADER_VALUE_OFFSETS])[0] = 0
    key_at = c[C_HEADER_KEY_SIZE]
    value_at = c[C_HEADER_VALUE_SIZE]
    for _ in range(count):
        size, position = varint(data, position, end, True)
        if position < 0 or size < 0 or size > end - position:
            return MALFORMED_AT
        high = 0
        for n in range(size):
            high |= data[position + n]
        if high >= 0x80:
            c[C_NOT_ASCII] = 1
        copy(c[C_HEADER_KEY_DATA] + key_at, address + position, size, payload_end - position)
        position += size
        key_at += size
        as_i32(c[C_HEADER_KEY_OFFSETS])[row + 1] = key_at
        size, position = varint(data, position, end, True)
        if position < 0 or size > end - position:
            return MALFORMED_AT
        value_at = _append(
            context,
            C_HEADER_VALUE_OFFSETS,
            C_HEADER_VALUE_NULLS,
            row,
            value_at,
            size,
            address + position,
            payload_end - position,
        )
        position += max(size, 0)
        row += 1
    c[C_HEADERS] = row
    c[C_HEADER_KEY_SIZE] = key_at
    c[C_HEADER_VALUE_SIZE] = value_at
    return position


@native
def _fill_constants(context: int, batch: int, first: int, last: int) -> None:
    """Columns that have one value for the whole batch."""
    c = as_i64(context)
    b = as_i64(batch)
    if c[C_TIMESTAMP_TYPE] != 0:
        out32 = as_i32(c[C_TIMESTAMP_TYPE])
        kind = (b[B_ATTRIBUTES] >> 3) & 1
        for row in range(first, last):
            out32[row] = kind
    if c[C_PRODUCER_ID] != 0:
        out64 = as_i64(c[C_PRODUCER_ID])
        producer_id = b[B_PRODUCER_ID]
        for row in range(first, last):
            out64[row] = producer_id
    if c[C_PRODUCER_EPOCH] != 0:
        out16 = as_i16(c[C_PRODUCER_EPOCH])
        producer_epoch = b[B_PRODUCER_EPOCH]
        for row in range(first, last):
            out16[row] = producer_epoch
    if c[C_LEADER_EPOCH] != 0:
        out32 = as_i32(c[C_LEADER_EPOCH])
        leader_epoch = b[B_LEADER_EPOCH]
        for row in range(first, last):
            out32[row] = leader_epoch


@native
def _decode_batch(context: int, batch: int) -> bool:
    c = as_i64(context)
    b = as_i64(batch)
    address = b[B_PAYLOAD]
    payload_end = b[B_PAYLOAD_SIZE]
    count = b[B_RECORD_COUNT]
    attributes = b[B_ATTRIBUTES]
    base_offset = b[B_BASE_OFFSET]
    append_time = attributes & 0x08 != 0
    base_timestamp = b[B_MAX_TIMESTAMP] if append_time else b[B_BASE_TIMESTAMP]
    base_sequence = b[B_BASE_SEQUENCE]
    start_offset = c[C_START_OFFSET]
    end_offset = c[C_END_OFFSET]
    want_offset = c[C_OFFSET] != 0
    want_timestamp = c[C_TIMESTAMP] != 0
    want_sequence = c[C_SEQUENCE] != 0
    want_key = c[C_KEY_OFFSETS] != 0
    want_value = c[C_VALUE_OFFSETS] != 0
    want_headers = c[C_HEADERS_OFFSETS] != 0
    offset_out = as_i64(c[C_OFFSET])
    timestamp_out = as_i64(c[C_TIMESTAMP])
    sequence_out = as_i32(c[C_SEQUENCE])
    headers_offsets = as_i32(c[C_HEADERS_OFFSETS])
    headers_valid = as_u8(c[C_HEADERS_VALID])
    first_row = c[C_ROWS]
    row = first_row
    key_at = c[C_KEY_SIZE]
    value_at = c[C_VALUE_SIZE]
    data = as_u8(address)
    if count < 0:
        return False
    if first_row == 0:
        _begin(context, C_KEY_OFFSETS)
        _begin(context, C_VALUE_OFFSETS)
        _begin(context, C_HEADERS_OFFSETS)
    position = 0
    damage = 0
    for _ in range(count):
        size, position = varint(data, position, payload_end, True)
        if position < 0 or size < 1 or size > payload_end - position:
            return False
        end = position + size
        if end + OVERRUN <= payload_end:
            fields = record_fields(data, position, end, False)
        else:
            fields = record_fields(data, position, end, True)
        (
            timestamp_delta,
            offset_delta,
            key_size,
            key_start,
            value_size,
            value_start,
            header_count,
            position,
        ) = fields
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
                if sequence > 0x7FFF_FFFF:
                    sequence -= 0x8000_0000
            else:
                sequence = -1
            sequence_out[row] = sequence
        if want_key:
            source = address + key_start
            key_at = _append(
                context, C_KEY_OFFSETS, C_KEY_NULLS, row, key_at, key_size, source, payload_end - key_start
            )
        if want_value:
            source = address + value_start
            value_at = _append(
                context,
                C_VALUE_OFFSETS,
                C_VALUE_NULLS,
                row,
                value_at,
                value_size,
                source,
                payload_end - value_start,
            )
        if want_headers:
            if row & 7 == 0:
                headers_valid[row >> 3] = 0xFF
            if header_count == 0:
                headers_valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                c[C_HEADERS_NULLS] += 1
            else:
                position = _write_headers(context, address, position, end, header_count, payload_end)
            headers_offsets[row + 1] = c[C_HEADERS]
        elif header_count > 0:
            position = skip_headers(data, position, end, header_count)
        # Not a branch: the next record's address would wait for this record's fields instead of its length alone.
        damage |= position ^ end
        position = end
        row += 1
    if damage != 0 or position != payload_end:
        return False
    c[C_ROWS] = row
    c[C_KEY_SIZE] = key_at
    c[C_VALUE_SIZE] = value_at
    _fill_constants(context, batch, first_row, row)
    return True


@native
def _has_room(context: int, batch: int) -> bool:
    """Whether the outputs can hold whatever the batch holds."""
    c = as_i64(context)
    b = as_i64(batch)
    size = b[B_PAYLOAD_SIZE]
    rows = min(max(b[B_RECORD_COUNT], 0), size // _RECORD_SIZE_MIN)
    fits: bool = (
        c[C_ROWS] + rows <= c[C_CAPACITY + C_ROWS]
        and c[C_KEY_SIZE] + size <= c[C_CAPACITY + C_KEY_SIZE]
        and c[C_VALUE_SIZE] + size <= c[C_CAPACITY + C_VALUE_SIZE]
        and c[C_HEADERS] + size // _HEADER_BYTES_MIN <= c[C_CAPACITY + C_HEADERS]
        and c[C_HEADER_KEY_SIZE] + size <= c[C_CAPACITY + C_HEADER_KEY_SIZE]
        and c[C_HEADER_VALUE_SIZE] + size <= c[C_CAPACITY + C_HEADER_VALUE_SIZE]
    )
    return fits


@compiled("int64(int64, int64, int64, int64, int64)")
def run(context: int, address: int, table: int, first: int, last: int) -> int:
    """Append the records of the batches [first, last) of `table`, which lie at `address`, to the output.

    Returns the index where it stopped, with the reason in the context: DONE; FULL, the output has no room for whatever
    this batch may hold; COMPRESSED, its CRC is right (set `B_PAYLOAD` to the decompressed records, clear the codec,
    set `CRC_VERIFIED`); CORRUPT, its CRC is wrong; MALFORMED, its records are (and the output holds rubbish). What is
    malformed is exactly what `record_format.parse_records` says, whatever columns are wanted.
    """
    c = as_i64(context)
    for index in range(first, last):
        batch = table + index * (BATCH_WORDS * 8)
        b = as_i64(batch)
        if c[C_VERIFY_CRC] != 0 and b[B_CRC] != CRC_VERIFIED:
            covered = address + b[B_POSITION] + _ATTRIBUTES_AT
            if native_crc32c(covered, b[B_SIZE] - _ATTRIBUTES_AT) != b[B_CRC]:
                c[C_STATUS] = CORRUPT
                return index
            b[B_CRC] = CRC_VERIFIED
        if b[B_ATTRIBUTES] & _CONTROL_BIT != 0 and c[C_INCLUDE_CONTROL] == 0:
            continue
        if b[B_ATTRIBUTES] & _CODEC_MASK != 0:
            c[C_STATUS] = COMPRESSED
            return index
        if not _has_room(context, batch):
            c[C_STATUS] = FULL
            return index
        if not _decode_batch(context, batch):
            c[C_STATUS] = MALFORMED
            return index
    c[C_STATUS] = DONE
    return last
