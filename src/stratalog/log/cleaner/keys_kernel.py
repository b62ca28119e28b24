"""Native loops that fill the offset map: keys are hashed where they lie, values are never touched. No interpreter lock.

Every read stays within the chunk or payload that is given. What is malformed is exactly what
`record_format.parse_records` says. Importing this module loads numba and compiles the loops, or reads them from numba's
cache.
"""

from __future__ import annotations

from stratalog.log.cleaner.chunk_kernel import (
    HEADER_SIZE,
    check_batch,
)
from stratalog.log.cleaner.context import (
    DONE,
    MALFORMED,
    MAP_FULL,
    X_CHUNK,
    X_MAP,
    X_MESSAGES_READ,
    X_POSITION,
    X_START_OFFSET,
    X_STATUS,
)
from stratalog.log.cleaner.map_kernel import M_LATEST_OFFSET, M_SIZE, M_SIZE_WANTED, map_put
from stratalog.records.native import (
    OVERRUN,
    as_i64,
    as_u8,
    compiled,
    load_be32,
    load_be64,
    native,
    record_fields,
    skip_headers,
    varint,
)


@native
def _put_keys(context: int, header: int, payload: int, size: int) -> int:
    """Put the keys of one batch into the map, in order; DONE, MAP_FULL or MALFORMED."""
    x = as_i64(context)
    state = x[X_MAP]
    words = as_i64(state)
    wanted = words[M_SIZE_WANTED]
    start_offset = x[X_START_OFFSET]
    base_offset = load_be64(header)
    count = load_be32(header + 57)
    data = as_u8(payload)
    position = 0
    if count < 0:
        return MALFORMED
    for _ in range(count):
        length, position = varint(data, position, size, True)
        if position < 0 or length < 1 or length > size - position:
            return MALFORMED
        end = position + length
        if end + OVERRUN <= size:
            fields = record_fields(data, position, end, False)
        else:
            fields = record_fields(data, position, end, True)
        _, offset_delta, key_size, key_start, _, _, header_count, position = fields
        if position >= 0 and header_count > 0:
            position = skip_headers(data, position, end, header_count)
        if position != end:
            return MALFORMED
        offset = base_offset + offset_delta
        is_wanted = key_size >= 0 and offset >= start_offset
        if is_wanted and (words[M_SIZE] >= wanted or not map_put(state, payload + key_start, key_size, offset)):
            return MAP_FULL
        x[X_MESSAGES_READ] += 1
    return DONE if position == size else MALFORMED


@compiled("int64(int64, int64, int64, int64)")
def put_keys(context: int, header: int, payload: int, size: int) -> int:
    """Put the keys of the batch whose header is given and whose decompressed records are the payload; see `_put_keys`.

    The latest offset of the map is that of the last key then; the caller sets it to that of the batch.
    """
    return _put_keys(context, header, payload, size)


@compiled("void(int64)")
def put_chunk(context: int) -> None:
    """Put the keys of batch after batch, up to one that is SPECIAL or in some way wrong, or MAP_FULL."""
    x = as_i64(context)
    words = as_i64(x[X_MAP])
    while True:
        whole = check_batch(context, True)
        if whole == 0:
            return
        at = x[X_CHUNK] + x[X_POSITION]
        status = _put_keys(context, at, at + HEADER_SIZE, whole - HEADER_SIZE)
        if status != DONE:
            x[X_STATUS] = status
            return
        last_offset = load_be64(at) + load_be32(at + 23)
        if last_offset >= x[X_START_OFFSET]:
            words[M_LATEST_OFFSET] = last_offset
        x[X_POSITION] += whole
