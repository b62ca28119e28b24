"""Native loops that write a batch anew with the records that stay. No interpreter lock.

Every write stays within what the caller has found room for (`context.RECORD_GROWTH` more a record than there was).
"""

from __future__ import annotations

from typing import Any

from stratalog.log.cleaner.chunk_kernel import APPEND_TIME_BIT, ATTRIBUTES_AT, CRC_AT, HEADER_SIZE
from stratalog.log.cleaner.context import X_FLAGS
from stratalog.records.native import (
    as_i64,
    as_u8,
    copy_any,
    inlined,
    load_be16,
    load_be32,
    load_be64,
    native,
    native_crc32c,
    put_varint,
    store_be16,
    store_be32,
    store_be64,
    varint,
    varint_size,
)


@inlined
def _known_varint(data: Any, position: int, end: int) -> tuple[int, int]:
    """A varlong that is known to be there, and the position behind it."""
    raw = 0
    shift = 0
    while position < end:
        byte = data[position] & 0xFF
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return ((raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1), position


@native
def write_retained(context: int, header: int, payload: int, size: int, base_timestamp: int, target: int) -> int:
    """Write the records that stay, with timestamps relative to `base_timestamp`; the address behind them."""
    x = as_i64(context)
    flags = as_u8(x[X_FLAGS])
    data = as_u8(payload)
    append_time = load_be16(header + ATTRIBUTES_AT) & APPEND_TIME_BIT != 0
    old_base = load_be64(header + 27)
    batch_timestamp = load_be64(header + 35)
    position = 0
    run_start = run_end = 0  # records that stay as they are, one behind the other
    for index in range(load_be32(header + 57)):
        start = position
        length, position = varint(data, position, size, True)
        body = position
        position += length
        if flags[index] == 0:
            continue
        old_delta, rest = _known_varint(data, body + 1, position)
        timestamp = batch_timestamp if append_time else old_base + old_delta
        delta = timestamp - base_timestamp
        if delta == old_delta:
            if start != run_end:
                copy_any(target, payload + run_start, run_end - run_start)
                target += run_end - run_start
                run_start = start
            run_end = position
            continue
        copy_any(target, payload + run_start, run_end - run_start)
        target += run_end - run_start
        run_start = run_end = position
        kept = position - rest
        target = put_varint(target, 1 + varint_size(delta) + kept)
        as_u8(target)[0] = 0
        target = put_varint(target + 1, delta)
        copy_any(target, payload + rest, kept)
        target += kept
    copy_any(target, payload + run_start, run_end - run_start)
    return target + run_end - run_start


@inlined
def write_header(
    header: int, target: int, size: int, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> None:
    """Write the header of a batch of `size` bytes whose records stand behind it already."""
    copy_any(target, header, HEADER_SIZE)
    store_be32(target + 8, size - 12)
    store_be16(target + ATTRIBUTES_AT, attributes)
    store_be64(target + 27, base_timestamp)
    store_be64(target + 35, max_timestamp)
    store_be32(target + 57, count)
    store_be32(target + CRC_AT, native_crc32c(target + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
