"""Native loops that decide which records of a batch are retained, and write the new batch. No interpreter lock.

`filter_plain` has the plain twin. Every read stays within the given chunk or payload, every write within the capacities
in the context. Importing this module loads the loops.
"""

from __future__ import annotations

from typing import Any

from stratalog.log.cleaner.batch_kernel import write_header, write_retained
from stratalog.log.cleaner.chunk_kernel import check_batch, context_at
from stratalog.log.cleaner.context import DONE, MALFORMED, OUT_FULL, RECORD_GROWTH, SPECIAL, UNUSUAL, CleanedRow
from stratalog.log.cleaner.map_kernel import is_superseded, map_state
from stratalog.records import HEADER_SIZE, NO_TIMESTAMP, batch_format as fmt
from stratalog.records.native import (
    as_u8,
    compiled,
    copy_any,
    inlined,
    load_be64,
    native,
    read_header,
    record_body,
    record_bounds,
    struct_at,
    varint,
    varint_size,
)

_APPEND_TIME_BIT = fmt.LOG_APPEND_TIME_BIT
_HORIZON_BIT = fmt.DELETE_HORIZON_BIT
_cleaned_rows: Any = struct_at(CleanedRow)


@native
def _plain_headers(data: Any, position: int, end: int, count: int) -> int:
    """Return the position after `count` headers.

    Return -1 for malformed ones, -2 unless every varint has the shortest form and every key is ASCII.
    """
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
def _select(context: int, payload: int, size: int, keep_all: bool) -> int:  # noqa: C901
    """Set a flag for each retained record of the context's batch, and put their totals in the context.

    Return DONE, MALFORMED, UNUSUAL, or OUT_FULL if there are too few flags.
    """
    x = context_at(context, 0)
    batch = x.batch
    state = x.map
    latest_offset = map_state(state, 0).latest_offset
    base_offset = batch.base_offset
    attributes = batch.attributes
    base_timestamp = batch.base_timestamp
    append_time = attributes & _APPEND_TIME_BIT != 0
    batch_timestamp = batch.max_timestamp
    keep_deletes = attributes & _HORIZON_BIT == 0 or x.now_ms < base_timestamp
    count = batch.record_count
    if count < 0:
        return MALFORMED
    if count > x.flags_capacity:
        return OUT_FULL
    flags = as_u8(x.flags)
    data = as_u8(payload)
    usual = attributes & _HORIZON_BIT == 0 or base_timestamp >= 0
    position = retained = keyless = 0
    has_tombstones = False
    last_offset = -1
    first_timestamp = max_timestamp = NO_TIMESTAMP
    for index in range(count):
        start = position
        body, end = record_bounds(data, position, size)
        if body < 0:
            return MALFORMED
        (
            timestamp_delta,
            offset_delta,
            key_size,
            key_start,
            value_size,
            _,
            header_count,
            position,
        ) = record_body(data, body, end, size)
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
            # Unless all numbers have the shortest form and the unused byte is 0, Kafka would write it differently.
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
                and body - start == varint_size(end - body)
                and data[body] == 0
                and key_size >= -1
                and value_size >= -1
            )
    if position != size:
        return MALFORMED
    x.count = count
    x.retained = retained
    x.has_tombstones = has_tombstones
    x.first_timestamp = first_timestamp
    x.max_timestamp = batch_timestamp if append_time else max_timestamp
    x.keyless = keyless
    return DONE if usual else UNUSUAL


@inlined
def _count(context: int) -> None:
    """Count the records of the last batch given to `_select`."""
    x = context_at(context, 0)
    x.messages_read += x.count
    x.messages_retained += x.retained
    x.invalid += x.keyless


@inlined
def _add_row(context: int, target: int, size: int) -> None:
    """Add a row for the context's new batch, which is at the end of the output."""
    x = context_at(context, 0)
    row = _cleaned_rows(x.table, x.table_rows)
    row.base_offset = x.batch.base_offset
    row.last_offset = x.batch.last_offset
    row.max_timestamp = load_be64(target + fmt.MAX_TIMESTAMP_AT)
    row.size = size
    row.leader_epoch = x.batch.leader_epoch
    x.table_rows += 1
    x.out_size += size


@native
def _has_room(context: int) -> bool:
    """Return whether the output has enough room for the context's batch in any case."""
    x = context_at(context, 0)
    most = x.batch.size + RECORD_GROWTH * max(x.batch.record_count, 0)
    fits: bool = x.out_size + most <= x.out_capacity and x.table_rows < x.table_capacity
    return fits


@inlined
def _new_base_timestamp(context: int, needs_horizon: bool) -> Any:
    x = context_at(context, 0)
    if needs_horizon:
        return x.new_horizon_ms
    if x.batch.attributes & _HORIZON_BIT != 0:
        return x.batch.base_timestamp
    return x.first_timestamp


@compiled("int64(int64, int64, int64, int64, boolean)")
def select(context: int, header: int, payload: int, size: int, keep_all: bool) -> int:
    """Select the retained records of one batch, whose decompressed records are the payload. Return as `_select`.

    If that is DONE, the batch's records are counted in the context. With `keep_all` every record is retained.
    """
    read_header(header, context_at(context, 0).batch)
    status = _select(context, payload, size, keep_all)
    if status == DONE:
        _count(context)
    return status


@compiled("int64(int64, int64, int64, int64, int64)")
def write_records(context: int, payload: int, size: int, base_timestamp: int, target: int) -> int:
    """Write the records of the last `select` to `target`, and return their size in bytes."""
    return write_retained(context, payload, size, base_timestamp, target) - target


@compiled("void(int64)")
def filter_chunk(context: int) -> None:
    """Filter batch after batch, up to one that is SPECIAL, UNUSUAL or invalid, or until the output is full."""
    x = context_at(context, 0)
    batch = x.batch
    while True:
        whole = check_batch(context, True)
        if whole == 0:
            return
        header = x.chunk + x.position
        if not _has_room(context):
            x.status = OUT_FULL
            return
        status = _select(context, batch.payload, batch.payload_size, False)
        if status != DONE:
            x.status = status
            return
        retained = x.retained
        if retained == 0 and (batch.producer_id >= 0 or batch.last_offset + 1 == x.high_watermark):
            x.status = SPECIAL
            return
        _count(context)
        x.position += whole
        x.bytes_read += whole
        if retained == 0:
            continue
        needs_horizon = x.has_tombstones != 0 and batch.attributes & _HORIZON_BIT == 0
        target = x.out + x.out_size
        if retained == x.count and not needs_horizon:
            copy_any(target, header, whole)
        else:
            base = _new_base_timestamp(context, needs_horizon)
            end = write_retained(context, batch.payload, batch.payload_size, base, target + HEADER_SIZE)
            whole = end - target
            attributes = (batch.attributes & fmt.KNOWN_BITS) | (_HORIZON_BIT if needs_horizon else 0)
            write_header(header, target, whole, attributes, base, x.max_timestamp, retained)
        _add_row(context, target, whole)
