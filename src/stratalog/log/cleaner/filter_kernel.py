"""Native loops that decide which records of a batch stay, and write what becomes of it. No interpreter lock.

`filter_plain` has the plain twin. Every read stays within the chunk or payload that is given, every write within the
capacities that the context states. Importing this module loads numba and compiles the loops, or reads them from its
cache.
"""

from __future__ import annotations

from typing import Any

from stratalog.log.cleaner.batch_kernel import write_header, write_retained
from stratalog.log.cleaner.chunk_kernel import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    HORIZON_BIT,
    TRANSACTIONAL_BIT,
    check_batch,
)
from stratalog.log.cleaner.context import (
    DONE,
    MALFORMED,
    OUT_FULL,
    R_BASE_OFFSET,
    R_LAST_OFFSET,
    R_LEADER_EPOCH,
    R_MAX_TIMESTAMP,
    R_SIZE,
    RECORD_GROWTH,
    ROW_WORDS,
    SPECIAL,
    UNUSUAL,
    X_BYTES_READ,
    X_CHUNK,
    X_COUNT,
    X_FIRST_TIMESTAMP,
    X_FLAGS,
    X_FLAGS_CAPACITY,
    X_HAS_TOMBSTONES,
    X_HIGH_WATERMARK,
    X_INVALID,
    X_KEYLESS,
    X_MAP,
    X_MAX_TIMESTAMP,
    X_MESSAGES_READ,
    X_MESSAGES_RETAINED,
    X_NEW_HORIZON_MS,
    X_NOW_MS,
    X_OUT,
    X_OUT_CAPACITY,
    X_OUT_SIZE,
    X_POSITION,
    X_RETAINED,
    X_STATUS,
    X_TABLE,
    X_TABLE_CAPACITY,
    X_TABLE_ROWS,
)
from stratalog.log.cleaner.map_kernel import M_LATEST_OFFSET, is_superseded
from stratalog.records.native import (
    OVERRUN,
    as_i64,
    as_u8,
    compiled,
    copy_any,
    inlined,
    load_be16,
    load_be32,
    load_be64,
    native,
    record_fields,
    varint,
    varint_size,
)

_NO_TIMESTAMP = -1


@native
def _plain_headers(data: Any, position: int, end: int, count: int) -> int:
    """Position behind `count` headers; -1 for malformed ones, -2 unless every varint is of the shortest form and every
    key is ASCII."""
    usual = True
    for _ in range(count):
        size, start = varint(data, position, end, True)
        if start < 0 or size < 0 or size > end - start:
            return -1
        usual &= start - position == varint_size(size)
        for n in range(start, start + size):
            usual &= data[n] < 0x80
        position = start + size
        size, start = varint(data, position, end, True)
        if start < 0 or size > end - start:
            return -1
        usual &= start - position == varint_size(max(size, -1)) and size >= -1
        position = start + max(size, 0)
    return position if usual else -2


@native
def _select(context: int, header: int, payload: int, size: int, keep_all: bool) -> int:
    """Set a flag for each record that stays, and say in the context what they have.

    DONE, MALFORMED, UNUSUAL, or OUT_FULL if there are not as many flags.
    """
    x = as_i64(context)
    state = x[X_MAP]
    latest_offset = as_i64(state)[M_LATEST_OFFSET]
    base_offset = load_be64(header)
    attributes = load_be16(header + ATTRIBUTES_AT)
    base_timestamp = load_be64(header + 27)
    append_time = attributes & APPEND_TIME_BIT != 0
    batch_timestamp = load_be64(header + 35)
    keep_deletes = attributes & HORIZON_BIT == 0 or x[X_NOW_MS] < base_timestamp
    count = load_be32(header + 57)
    if count < 0:
        return MALFORMED
    if count > x[X_FLAGS_CAPACITY]:
        return OUT_FULL
    flags = as_u8(x[X_FLAGS])
    data = as_u8(payload)
    usual = attributes & HORIZON_BIT == 0 or base_timestamp >= 0
    position = retained = keyless = 0
    has_tombstones = False
    last_offset = -1
    first_timestamp = max_timestamp = _NO_TIMESTAMP
    for index in range(count):
        start = position
        length, position = varint(data, position, size, True)
        if position < 0 or length < 1 or length > size - position:
            return MALFORMED
        body = position
        end = position + length
        if end + OVERRUN <= size:
            fields = record_fields(data, position, end, False)
        else:
            fields = record_fields(data, position, end, True)
        (
            timestamp_delta,
            offset_delta,
            key_size,
            key_start,
            value_size,
            _,
            header_count,
            position,
        ) = fields
        if position < 0:
            return MALFORMED
        headers = position
        if header_count > 0:
            position = _plain_headers(data, position, end, header_count)
            if position == -2:
                usual = False
                position = end
        if position != end:
            return MALFORMED
        offset = base_offset + offset_delta
        stays = keep_all or offset > latest_offset
        if not stays:
            if key_size < 0:
                keyless += 1
            else:
                is_last = not is_superseded(state, payload + key_start, key_size, offset)
                stays = is_last and (value_size >= 0 or keep_deletes)
        flags[index] = stays
        if stays:
            timestamp = batch_timestamp if append_time else base_timestamp + timestamp_delta
            if retained == 0:
                first_timestamp = timestamp
            elif offset <= last_offset:
                return MALFORMED
            last_offset = offset
            max_timestamp = max(max_timestamp, timestamp)
            retained += 1
            has_tombstones |= value_size < 0
            # Written in the shortest form, and nothing in the unused byte: else a copy is not what Kafka writes.
            shortest = (
                1
                + varint_size(timestamp_delta)
                + varint_size(offset_delta)
                + varint_size(key_size)
                + max(key_size, 0)
                + varint_size(value_size)
                + max(value_size, 0)
                + varint_size(header_count)
            )
            usual &= (
                headers - body == shortest
                and body - start == varint_size(length)
                and data[body] == 0
                and key_size >= -1
                and value_size >= -1
            )
    if position != size:
        return MALFORMED
    x[X_COUNT] = count
    x[X_RETAINED] = retained
    x[X_HAS_TOMBSTONES] = has_tombstones
    x[X_FIRST_TIMESTAMP] = first_timestamp
    x[X_MAX_TIMESTAMP] = batch_timestamp if append_time else max_timestamp
    x[X_KEYLESS] = keyless
    return DONE if usual else UNUSUAL


@inlined
def _count(context: int) -> None:
    """Count the records of the batch that `_select` saw last."""
    x = as_i64(context)
    x[X_MESSAGES_READ] += x[X_COUNT]
    x[X_MESSAGES_RETAINED] += x[X_RETAINED]
    x[X_INVALID] += x[X_KEYLESS]


@inlined
def _add_row(context: int, target: int, size: int) -> None:
    """Count a batch that stands at the end of the output."""
    x = as_i64(context)
    row = as_i64(x[X_TABLE] + x[X_TABLE_ROWS] * (ROW_WORDS * 8))
    row[R_BASE_OFFSET] = load_be64(target)
    row[R_LAST_OFFSET] = load_be64(target) + load_be32(target + 23)
    row[R_MAX_TIMESTAMP] = load_be64(target + 35)
    row[R_SIZE] = size
    row[R_LEADER_EPOCH] = load_be32(target + 12)
    x[X_TABLE_ROWS] += 1
    x[X_OUT_SIZE] += size


@native
def _has_room(context: int, header: int, size: int) -> bool:
    """Whether the output can hold whatever becomes of a batch with `size` bytes of records."""
    x = as_i64(context)
    most = HEADER_SIZE + size + RECORD_GROWTH * max(load_be32(header + 57), 0)
    fits: bool = x[X_OUT_SIZE] + most <= x[X_OUT_CAPACITY] and x[X_TABLE_ROWS] < x[X_TABLE_CAPACITY]
    return fits


@inlined
def _new_base_timestamp(context: int, header: int, needs_horizon: bool) -> Any:
    x = as_i64(context)
    if needs_horizon:
        return x[X_NEW_HORIZON_MS]
    if load_be16(header + ATTRIBUTES_AT) & HORIZON_BIT != 0:
        return load_be64(header + 27)
    return x[X_FIRST_TIMESTAMP]


@compiled("int64(int64, int64, int64, int64, boolean)")
def select(context: int, header: int, payload: int, size: int, keep_all: bool) -> int:
    """Choose among the records of one batch, whose decompressed records are the payload; status as `_select`.

    The batch's records are counted in the context if that is DONE. With `keep_all` every record stays.
    """
    status = _select(context, header, payload, size, keep_all)
    if status == DONE:
        _count(context)
    return status


@compiled("int64(int64, int64, int64, int64, int64, int64)")
def write_records(context: int, header: int, payload: int, size: int, base_timestamp: int, target: int) -> int:
    """Write the records that the last `select` chose to `target`; how many bytes."""
    return write_retained(context, header, payload, size, base_timestamp, target) - target


@compiled("void(int64)")
def filter_chunk(context: int) -> None:
    """Take batch after batch, up to one that is SPECIAL or in some way wrong, or UNUSUAL, or until the output is
    full."""
    x = as_i64(context)
    while True:
        whole = check_batch(context, True)
        if whole == 0:
            return
        header = x[X_CHUNK] + x[X_POSITION]
        payload = header + HEADER_SIZE
        size = whole - HEADER_SIZE
        if not _has_room(context, header, size):
            x[X_STATUS] = OUT_FULL
            return
        status = _select(context, header, payload, size, False)
        if status != DONE:
            x[X_STATUS] = status
            return
        retained = x[X_RETAINED]
        if retained == 0 and (
            load_be64(header + 43) >= 0 or load_be64(header) + load_be32(header + 23) + 1 == x[X_HIGH_WATERMARK]
        ):
            x[X_STATUS] = SPECIAL
            return
        _count(context)
        x[X_POSITION] += whole
        x[X_BYTES_READ] += whole
        if retained == 0:
            continue
        attributes = load_be16(header + ATTRIBUTES_AT)
        needs_horizon = x[X_HAS_TOMBSTONES] != 0 and attributes & HORIZON_BIT == 0
        target = x[X_OUT] + x[X_OUT_SIZE]
        if retained == x[X_COUNT] and not needs_horizon:
            copy_any(target, header, whole)
        else:
            base = _new_base_timestamp(context, header, needs_horizon)
            end = write_retained(context, header, payload, size, base, target + HEADER_SIZE)
            whole = end - target
            kept_bits = APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | HORIZON_BIT | CODEC_MASK
            attributes = (attributes & kept_bits) | (HORIZON_BIT if needs_horizon else 0)
            write_header(header, target, whole, attributes, base, x[X_MAX_TIMESTAMP], retained)
        _add_row(context, target, whole)
