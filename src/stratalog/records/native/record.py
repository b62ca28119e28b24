"""One record in raw memory: what every native loop over records is made of.

A record is [position, end) of the payload that a pointer points to; `record_format` has its layout. What is malformed
here is exactly what `record_format.parse_records` says.
"""

from __future__ import annotations

from typing import Any, Final

from stratalog.records.native.toolkit import as_u8, copy_32, copy_any, inlined, native, numba

OVERRUN: Final = 32
"""Bytes that `record_fields` may read past a record unless it checks."""
MALFORMED_AT: Final = -1
"""Instead of a position: there is none, the bytes are no record."""


@inlined
def copy(target: int, source: int, size: int, readable: int) -> None:
    """Copy `size` bytes. Up to 32 bytes more are written to `target`; `readable` bytes may be read at `source`."""
    if size <= 256 and size + 32 <= readable:
        done = 0
        while done < size:
            copy_32(target + done, source + done)
            done += 32
    else:
        copy_any(target, source, size)


@native
def _long_varint(data: Any, position: int, end: int, bits_max: int, mask: int) -> tuple[int, int]:
    """Return a varint of up to `bits_max` / 7 bytes whose value lies within `mask`."""
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
    return 0, MALFORMED_AT


@inlined
def _short_or_long(data: Any, position: int, end: int, checked: bool, bits_max: int, mask: int) -> tuple[int, int]:
    """Return a zigzag varint, with the first three bytes unrolled."""
    if not checked or end - position >= 3:
        raw = numba.int64(data[position])
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 1
        byte = numba.int64(data[position + 1])
        raw = (raw & 0x7F) | (byte << 7)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 2
        byte = numba.int64(data[position + 2])
        if byte < 0x80:
            raw = (raw & 0x3FFF) | (byte << 14)
            return (raw >> 1) ^ -(raw & 1), position + 3
    return _long_varint(data, position, end, bits_max, mask)


@inlined
def varint(data: Any, position: int, end: int, checked: bool) -> tuple[int, int]:
    """Return a zigzag varint of up to 5 bytes, and the position after it; position -1 for none.

    Unless `checked`, the caller knows that 3 bytes can be read, and later checks that they lie before `end`.
    """
    return _short_or_long(data, position, end, checked, 35, 0xFFFF_FFFF)


@inlined
def varlong(data: Any, position: int, end: int, checked: bool) -> tuple[int, int]:
    """Read as `varint`, up to 10 bytes."""
    return _short_or_long(data, position, end, checked, 70, -1)


@inlined
def record_fields(data: Any, position: int, end: int, checked: bool) -> tuple[int, int, int, int, int, int, int, int]:
    """Return the fields of the record in [position, end), without its headers.

    Timestamp delta, offset delta, key size, key start, value size, value start, header count, position after it;
    position -1 if malformed. Unless `checked`, `OVERRUN` bytes can be read from `end` on: a varint may then run over
    `end`, and the position shows it.
    """
    bad = (0, 0, 0, 0, 0, 0, 0, MALFORMED_AT)
    timestamp_delta, position = varlong(data, position + 1, end, checked)
    if position < 0:
        return bad
    offset_delta, position = varint(data, position, end, checked)
    if position < 0:
        return bad
    key_size, key_start = varint(data, position, end, checked)
    if key_start < 0 or key_size > end - key_start:
        return bad
    position = key_start + max(key_size, 0)
    value_size, value_start = varint(data, position, end, checked)
    if value_start < 0 or value_size > end - value_start:
        return bad
    position = value_start + max(value_size, 0)
    header_count, position = varint(data, position, end, checked)
    if position < 0 or header_count < 0 or header_count > end - position:
        return bad
    return timestamp_delta, offset_delta, key_size, key_start, value_size, value_start, header_count, position


@inlined
def record_body(data: Any, position: int, end: int, size: int) -> tuple[int, int, int, int, int, int, int, int]:
    """`record_fields` of the record in [position, end) of a payload of `size` bytes, checked as far as necessary."""
    if end + OVERRUN <= size:
        return record_fields(data, position, end, False)
    return record_fields(data, position, end, True)


@inlined
def record_bounds(data: Any, position: int, size: int) -> tuple[int, int]:
    """Return where the body of the record at `position` begins and ends; -1 for the beginning of what is malformed."""
    length, begin = varint(data, position, size, True)
    if begin < 0 or length < 1 or length > size - begin:
        return MALFORMED_AT, MALFORMED_AT
    return begin, begin + length


@inlined
def whole_record(data: Any, position: int, size: int) -> tuple[int, int, int, int, int, int]:
    """Return the fields of the record at `position`, and the position after its headers.

    Timestamp delta, offset delta, key size, key start, value size, position; -1 if malformed.
    """
    begin, end = record_bounds(data, position, size)
    if begin < 0:
        return 0, 0, 0, 0, 0, MALFORMED_AT
    timestamp_delta, offset_delta, key_size, key_start, value_size, _, headers, behind = record_body(
        data, begin, end, size
    )
    if behind >= 0 and headers > 0:
        behind = skip_headers(data, behind, end, headers)
    if behind != end:
        return 0, 0, 0, 0, 0, MALFORMED_AT
    return timestamp_delta, offset_delta, key_size, key_start, value_size, end


@native
def skip_headers(data: Any, position: int, end: int, count: int) -> int:
    """Position after `count` headers, or -1."""
    for _ in range(count):
        size, position = varint(data, position, end, True)
        if position < 0 or size < 0 or size > end - position:
            return MALFORMED_AT
        position += size
        size, position = varint(data, position, end, True)
        if position < 0 or size > end - position:
            return MALFORMED_AT
        if size > 0:
            position += size
    return position


@inlined
def varint_size(value: int) -> int:
    """Bytes of a zigzag varint or varlong."""
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw >> 7 != 0 and size < 10:
        raw = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
        size += 1
    return size


@inlined
def put_varint(at: int, value: int) -> int:
    """Write a zigzag varint or varlong; return the address after it."""
    raw = (value << 1) ^ (value >> 63)
    while raw & -128 != 0:
        as_u8(at)[0] = (raw & 0x7F) | 0x80
        raw = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
        at += 1
    as_u8(at)[0] = raw
    return at + 1
