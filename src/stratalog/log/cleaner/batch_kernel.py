"""Native loops that rewrite a batch with the records that stay. No interpreter lock.

Every write stays within what the caller has found room for (`context.RECORD_GROWTH` more a record than there was).
"""

from __future__ import annotations

from stratalog.log.cleaner.chunk_kernel import context_at
from stratalog.records import ATTRIBUTES_AT, HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD, batch_format as fmt
from stratalog.records.native import (
    as_u8,
    copy_any,
    inlined,
    native,
    native_crc32c,
    put_varint,
    store_be16,
    store_be32,
    store_be64,
    varint,
    varint_size,
    varlong,
)


@native
def write_retained(context: int, payload: int, size: int, base_timestamp: int, target: int) -> int:
    """Write the retained records of the context's batch, with timestamps relative to `base_timestamp`.

    Return the address after them.
    """
    x = context_at(context, 0)
    batch = x.batch
    flags = as_u8(x.flags)
    data = as_u8(payload)
    append_time = batch.attributes & fmt.LOG_APPEND_TIME_BIT != 0
    old_base = batch.base_timestamp
    batch_timestamp = batch.max_timestamp
    position = 0
    run_start = run_end = 0  # consecutive records that are copied unchanged
    for index in range(batch.record_count):
        start = position
        length, position = varint(data, position, size, True)
        body = position
        position += length
        if flags[index] == 0:
            continue
        old_delta, rest = varlong(data, body + 1, position, True)
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
def write_header(  # noqa: PLR0917
    header: int, target: int, size: int, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> None:
    """Write the header of a batch of `size` bytes whose records are already in place after it."""
    copy_any(target, header, HEADER_SIZE)
    store_be32(target + LENGTH_AT, size - LOG_OVERHEAD)
    store_be16(target + ATTRIBUTES_AT, attributes)
    store_be64(target + fmt.BASE_TIMESTAMP_AT, base_timestamp)
    store_be64(target + fmt.MAX_TIMESTAMP_AT, max_timestamp)
    store_be32(target + fmt.RECORD_COUNT_AT, count)
    store_be32(target + fmt.CRC_AT, native_crc32c(target + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
