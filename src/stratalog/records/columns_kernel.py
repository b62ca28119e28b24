"""Native loops of `columns`: walk batches and records in raw memory, write Arrow buffers. No interpreter lock.

Importing this module loads numba and compiles the loops, or reads them from numba's cache. All integers are int64 here
and all memory is addressed by pointer: numba's arrays would cost a second compilation for read-only input and a
wrap-around test for each access. Every read stays within [address, address + size) of what it was given; every write
within what `columns` reserved (see `DATA_SLACK`).

Two flat tables of int64 are the interface: one row of `BATCH_WORDS` for each batch, and one context. The `B_` and `C_`
constants index them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

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

# --- the context: how far the output is filled, the offset range, and the address of each output (0: not wanted)
C_ROWS: Final = 0
C_KEY_SIZE: Final = 1
C_VALUE_SIZE: Final = 2
C_HEADERS: Final = 3
C_HEADER_KEY_SIZE: Final = 4
C_HEADER_VALUE_SIZE: Final = 5
C_KEY_NULLS: Final = 6
C_VALUE_NULLS: Final = 7
C_HEADERS_NULLS: Final = 8
C_HEADER_VALUE_NULLS: Final = 9
C_NOT_ASCII: Final = 10
C_START_OFFSET: Final = 11
C_END_OFFSET: Final = 12
C_OFFSET: Final = 13
C_TIMESTAMP: Final = 14
C_TIMESTAMP_TYPE: Final = 15
C_PRODUCER_ID: Final = 16
C_PRODUCER_EPOCH: Final = 17
C_SEQUENCE: Final = 18
C_LEADER_EPOCH: Final = 19
C_KEY_OFFSETS: Final = 20
C_KEY_DATA: Final = 21
C_KEY_VALID: Final = 22
C_VALUE_OFFSETS: Final = 23
C_VALUE_DATA: Final = 24
C_VALUE_VALID: Final = 25
C_HEADERS_OFFSETS: Final = 26
C_HEADERS_VALID: Final = 27
C_HEADER_KEY_OFFSETS: Final = 28
C_HEADER_KEY_DATA: Final = 29
C_HEADER_VALUE_OFFSETS: Final = 30
C_HEADER_VALUE_DATA: Final = 31
C_HEADER_VALUE_VALID: Final = 32
CONTEXT_WORDS: Final = 33

DATA_SLACK: Final = 64
"""Bytes that must be reserved behind the data of every variable-length output: short copies run over."""

# --- what `scan` returns in its result words
S_COUNT: Final = 0
S_BAD_POSITION: Final = 1
S_ROWS_MAX: Final = 2
S_PAYLOAD_SIZE: Final = 3
SCAN_WORDS: Final = 4

OVERRUN: Final = 32
_HEADER_SIZE = 61
_RECORD_SIZE_MIN = 7
_ERROR = -1

F = TypeVar("F", bound=Callable[..., Any])


def _native(function: F) -> F:
    """A helper: compiled when a loop that calls it is."""
    return cast("F", numba.njit(nogil=True, cache=True)(function))


def _inlined(function: F) -> F:
    """A helper that is worth a copy at each call."""
    return cast("F", numba.njit(nogil=True, cache=True, forceinline=True)(function))


def _compiled(signature: str) -> Callable[[F], F]:
    """A loop that Python calls: compiled at import."""

    def decorate(function: F) -> F:
        return cast("F", numba.njit(signature, nogil=True, cache=True)(function))

    return decorate


def _pointer_intrinsic(target: Any) -> Any:
    def pointer(_typing: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return as_pointer(types.int64), codegen

    as_pointer: Any = cast("Any", types.CPointer)(target)
    return intrinsic(pointer)


_u8 = _pointer_intrinsic(types.uint8)
_i16 = _pointer_intrinsic(types.int16)
_i32 = _pointer_intrinsic(types.int32)
_i64 = _pointer_intrinsic(types.int64)


def _define_load(bits: int) -> Any:
    """Read a big-endian integer of `bits` at any address, sign-extended to int64."""

    def load(_typing: Any, address: Any) -> Any:  # noqa: ARG001
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            integer = ir.IntType(bits)
            raw = builder.load(builder.inttoptr(args[0], integer.as_pointer()), align=1)
            swapped = builder.bswap(raw)
            return swapped if bits == 64 else builder.sext(swapped, ir.IntType(64))

        return types.int64(types.int64), codegen

    return intrinsic(load)


_be16 = _define_load(16)
_be32 = _define_load(32)
_be64 = _define_load(64)


def _copy32_definition(_typing: Any, target: Any, source: Any) -> Any:  # noqa: ARG001
    """Copy exactly 32 bytes."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = ir.VectorType(ir.IntType(8), 32).as_pointer()
        block = builder.load(builder.inttoptr(args[1], pointer), align=1)
        builder.store(block, builder.inttoptr(args[0], pointer), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


_copy32: Any = intrinsic(_copy32_definition)


def _memcpy_definition(_typing: Any, target: Any, source: Any, size: Any) -> Any:  # noqa: ARG001
    raw_memcpy: Any = cgutils.raw_memcpy

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, byte) for address in args[:2])
        raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


_memcpy: Any = intrinsic(_memcpy_definition)


@_inlined
def _copy(target: int, source: int, size: int, readable: int) -> None:
    """Copy `size` bytes. Up to 32 bytes more are written to `target`; `readable` bytes may be read at `source`."""
    if size <= 256 and size + 32 <= readable:
        done = 0
        while done < size:
            _copy32(target + done, source + done)
            done += 32
    else:
        _memcpy(target, source, size)


@_native
def _long_varint(data: Any, position: int, end: int, bits_max: int, mask: int) -> tuple[int, int]:
    """A varint of up to `bits_max` / 7 bytes whose value lies within `mask`."""
    raw = 0
    shift = 0
    while position < end and shift < bits_max:
        byte = numba.int64(data[position])
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= mask
            return ((raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1), position
        shift += 7
    return 0, _ERROR


@_inlined
def _varint(data: Any, position: int, end: int, checked: bool) -> tuple[int, int]:
    """A zigzag varint of up to 5 bytes, and the position after it; position -1 for none.

    Unless `checked`, the caller knows that 2 bytes can be read, and finds out later whether they lie before `end`.
    """
    if not checked or end - position >= 2:
        low = numba.int64(data[position])
        if low < 0x80:
            return (low >> 1) ^ -(low & 1), position + 1
        high = numba.int64(data[position + 1])
        if high < 0x80:
            low = (low & 0x7F) | (high << 7)
            return (low >> 1) ^ -(low & 1), position + 2
    return _long_varint(data, position, end, 35, 0xFFFF_FFFF)


@_inlined
def _varlong(data: Any, position: int, end: int, checked: bool) -> tuple[int, int]:
    """As `_varint`, of up to 10 bytes."""
    if not checked or end - position >= 2:
        low = numba.int64(data[position])
        if low < 0x80:
            return (low >> 1) ^ -(low & 1), position + 1
        high = numba.int64(data[position + 1])
        if high < 0x80:
            low = (low & 0x7F) | (high << 7)
            return (low >> 1) ^ -(low & 1), position + 2
    return _long_varint(data, position, end, 70, -1)


@_inlined
def _fields(
    data: Any, position: int, end: int, checked: bool
) -> tuple[int, int, int, int, int, int, int, int]:
    """The fields of the record in [position, end) as far as its headers: timestamp delta, offset delta, key size, key
    start, value size, value start, header count, position after it; position -1 for what is malformed.

    Unless `checked`, `OVERRUN` bytes can be read from `end` on: a varint may then run over `end`, and the position shows it.
    """
    bad = (0, 0, 0, 0, 0, 0, 0, _ERROR)
    timestamp_delta, position = _varlong(data, position + 1, end, checked)
    if position < 0:
        return bad
    offset_delta, position = _varint(data, position, end, checked)
    if position < 0:
        return bad
    key_size, key_start = _varint(data, position, end, checked)
    if key_start < 0 or key_size > end - key_start:
        return bad
    position = key_start + max(key_size, 0)
    value_size, value_start = _varint(data, position, end, checked)
    if value_start < 0 or value_size > end - value_start:
        return bad
    position = value_start + max(value_size, 0)
    header_count, position = _varint(data, position, end, checked)
    if position < 0 or header_count < 0 or header_count > end - position:
        return bad
    return timestamp_delta, offset_delta, key_size, key_start, value_size, value_start, header_count, position


@_compiled("void(int64, int64, int64, int64, int64, int64, int64)")
def scan(
    address: int, size: int, start_offset: int, end_offset: int, table: int, capacity: int, result: int
) -> None:
    """List the complete batches that hold offsets in [start_offset, end_offset) in `table` (at most `capacity` of them;
    with 0 they are only counted).

    Result words: number of batches; position of a header that cannot be one, or -1; upper bounds of the records and of
    their bytes as they lie there. Stops at the first batch that begins at or after `end_offset`.
    """
    out = _i64(result)
    count = 0
    rows_max = 0
    payload_total = 0
    out[S_BAD_POSITION] = -1
    position = 0
    while size - position >= 17:
        at = address + position
        length = _be32(at + 8)
        if length < 49 or _u8(at)[16] != 2:
            out[S_BAD_POSITION] = position
            break
        whole = length + 12
        if whole > size - position:
            break
        base_offset = _be64(at)
        if base_offset >= end_offset:
            break
        if base_offset + _be32(at + 23) >= start_offset:
            record_count = _be32(at + 57)
            payload_size = whole - _HEADER_SIZE
            if count < capacity:
                row = _i64(table + count * (BATCH_WORDS * 8))
                row[B_POSITION] = position
                row[B_SIZE] = whole
                row[B_CRC] = _be32(at + 17) & 0xFFFF_FFFF
                row[B_ATTRIBUTES] = _be16(at + 21)
                row[B_BASE_OFFSET] = base_offset
                row[B_BASE_TIMESTAMP] = _be64(at + 27)
                row[B_MAX_TIMESTAMP] = _be64(at + 35)
                row[B_PRODUCER_ID] = _be64(at + 43)
                row[B_PRODUCER_EPOCH] = _be16(at + 51)
                row[B_BASE_SEQUENCE] = _be32(at + 53)
                row[B_LEADER_EPOCH] = _be32(at + 12)
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


@_native
def _skip_headers(data: Any, position: int, end: int, count: int) -> int:
    """Position after `count` headers, or -1."""
    for _ in range(count):
        size, position = _varint(data, position, end, True)
        if position < 0 or size < 0 or size > end - position:
            return _ERROR
        position += size
        size, position = _varint(data, position, end, True)
        if position < 0 or size > end - position:
            return _ERROR
        if size > 0:
            position += size
    return position


@_native
def _write_headers(context: int, address: int, position: int, end: int, count: int, payload_end: int) -> int:
    """Append `count` headers to the output; position after them, or -1."""
    c = _i64(context)
    data = _u8(address)
    key_offsets = _i32(c[C_HEADER_KEY_OFFSETS])
    value_offsets = _i32(c[C_HEADER_VALUE_OFFSETS])
    valid = _u8(c[C_HEADER_VALUE_VALID])
    row = c[C_HEADERS]
    if row == 0:
        key_offsets[0] = 0
        value_offsets[0] = 0
    key_at = c[C_HEADER_KEY_SIZE]
    value_at = c[C_HEADER_VALUE_SIZE]
    for _ in range(count):
        size, position = _varint(data, position, end, True)
        if position < 0 or size < 0 or size > end - position:
            return _ERROR
        high = 0
        for n in range(size):
            high |= data[position + n]
        if high >= 0x80:
            c[C_NOT_ASCII] = 1
        _copy(c[C_HEADER_KEY_DATA] + key_at, address + position, size, payload_end - position)
        position += size
        key_at += size
        size, position = _varint(data, position, end, True)
        if position < 0 or size > end - position:
            return _ERROR
        if row & 7 == 0:
            valid[row >> 3] = 0xFF
        if size < 0:
            valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
            c[C_HEADER_VALUE_NULLS] += 1
        else:
            _copy(c[C_HEADER_VALUE_DATA] + value_at, address + position, size, payload_end - position)
            position += size
            value_at += size
        row += 1
        key_offsets[row] = key_at
        value_offsets[row] = value_at
    c[C_HEADERS] = row
    c[C_HEADER_KEY_SIZE] = key_at
    c[C_HEADER_VALUE_SIZE] = value_at
    return position


@_native
def _fill_constants(context: int, batch: int, first: int, last: int) -> None:
    """Columns that have one value for the whole batch."""
    c = _i64(context)
    b = _i64(batch)
    if c[C_TIMESTAMP_TYPE] != 0:
        out32 = _i32(c[C_TIMESTAMP_TYPE])
        kind = (b[B_ATTRIBUTES] >> 3) & 1
        for row in range(first, last):
            out32[row] = kind
    if c[C_PRODUCER_ID] != 0:
        out64 = _i64(c[C_PRODUCER_ID])
        producer_id = b[B_PRODUCER_ID]
        for row in range(first, last):
            out64[row] = producer_id
    if c[C_PRODUCER_EPOCH] != 0:
        out16 = _i16(c[C_PRODUCER_EPOCH])
        producer_epoch = b[B_PRODUCER_EPOCH]
        for row in range(first, last):
            out16[row] = producer_epoch
    if c[C_LEADER_EPOCH] != 0:
        out32 = _i32(c[C_LEADER_EPOCH])
        leader_epoch = b[B_LEADER_EPOCH]
        for row in range(first, last):
            out32[row] = leader_epoch


@_native
def _decode_batch(context: int, batch: int) -> bool:
    c = _i64(context)
    b = _i64(batch)
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
    offset_out = _i64(c[C_OFFSET])
    timestamp_out = _i64(c[C_TIMESTAMP])
    sequence_out = _i32(c[C_SEQUENCE])
    key_offsets = _i32(c[C_KEY_OFFSETS])
    key_data = c[C_KEY_DATA]
    key_valid = _u8(c[C_KEY_VALID])
    value_offsets = _i32(c[C_VALUE_OFFSETS])
    value_data = c[C_VALUE_DATA]
    value_valid = _u8(c[C_VALUE_VALID])
    headers_offsets = _i32(c[C_HEADERS_OFFSETS])
    headers_valid = _u8(c[C_HEADERS_VALID])
    first_row = c[C_ROWS]
    row = first_row
    if first_row == 0:
        if want_key:
            key_offsets[0] = 0
        if want_value:
            value_offsets[0] = 0
        if want_headers:
            headers_offsets[0] = 0
    key_at = c[C_KEY_SIZE]
    value_at = c[C_VALUE_SIZE]
    data = _u8(address)
    if count < 0:
        return False
    position = 0
    damage = 0
    for _ in range(count):
        size, position = _varint(data, position, payload_end, True)
        if position < 0 or size < 1 or size > payload_end - position:
            return False
        end = position + size
        if end + OVERRUN <= payload_end:
            fields = _fields(data, position, end, False)
        else:
            fields = _fields(data, position, end, True)
        timestamp_delta, offset_delta, key_size, key_start, value_size, value_start, header_count, position = fields
        if position < 0:
            return False
        offset = base_offset + offset_delta
        if offset < start_offset or offset >= end_offset:
            if header_count > 0:
                position = _skip_headers(data, position, end, header_count)
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
            if row & 7 == 0:
                key_valid[row >> 3] = 0xFF
            if key_size < 0:
                key_valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                c[C_KEY_NULLS] += 1
            else:
                _copy(key_data + key_at, address + key_start, key_size, payload_end - key_start)
                key_at += key_size
            key_offsets[row + 1] = key_at
        if want_value:
            if row & 7 == 0:
                value_valid[row >> 3] = 0xFF
            if value_size < 0:
                value_valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                c[C_VALUE_NULLS] += 1
            else:
                _copy(value_data + value_at, address + value_start, value_size, payload_end - value_start)
                value_at += value_size
            value_offsets[row + 1] = value_at
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
            position = _skip_headers(data, position, end, header_count)
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


@_compiled("int64(int64, int64, int64, int64)")
def decode(context: int, table: int, first: int, last: int) -> int:
    """Append the records of the batches [first, last) of `table` to the output.

    Returns -1, or the index of the first batch whose records are malformed (then the output holds rubbish). What is
    malformed is exactly what `record_format.parse_records` says, whatever columns are wanted.
    """
    for index in range(first, last):
        if not _decode_batch(context, table + index * (BATCH_WORDS * 8)):
            return index
    return -1
