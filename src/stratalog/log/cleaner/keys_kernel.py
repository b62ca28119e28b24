"""Native loops that fill the offset map. Keys are hashed in place, values are not read. No interpreter lock.

Every read stays within the given chunk or payload. The loops find the same records malformed as
`record_format.parse_records`. Importing this module loads the loops.
"""

from __future__ import annotations

from stratalog.log.cleaner.chunk_kernel import check_batch, context_at
from stratalog.log.cleaner.context import DONE, MALFORMED, MAP_FULL
from stratalog.log.cleaner.map_kernel import map_put, map_state
from stratalog.records.native import as_u8, compiled, native, read_header, whole_record


@native
def _put_keys(context: int, payload: int, size: int) -> int:
    """Put the keys of the context's batch into the map, in order. Return DONE, MAP_FULL or MALFORMED."""
    x = context_at(context, 0)
    state = x.map
    words = map_state(state, 0)
    wanted = words.size_wanted
    start_offset = x.start_offset
    base_offset = x.batch.base_offset
    count = x.batch.record_count
    data = as_u8(payload)
    position = 0
    if count < 0:
        return MALFORMED
    for _ in range(count):
        _, offset_delta, key_size, key_start, _, position = whole_record(data, position, size)
        if position < 0:
            return MALFORMED
        offset = base_offset + offset_delta
        is_wanted = key_size >= 0 and offset >= start_offset
        if is_wanted and (words.size >= wanted or not map_put(state, payload + key_start, key_size, offset)):
            return MAP_FULL
        x.messages_read += 1
    return DONE if position == size else MALFORMED


@compiled("int64(int64, int64, int64, int64)")
def put_keys(context: int, header: int, payload: int, size: int) -> int:
    """Put the keys of the batch whose header is given and whose decompressed records are the payload; see `_put_keys`.

    Afterwards the latest offset of the map is that of the last key. The caller sets it to that of the batch.
    """
    read_header(header, context_at(context, 0).batch)
    return _put_keys(context, payload, size)


@compiled("void(int64)")
def put_chunk(context: int) -> None:
    """Put the keys of batch after batch into the map, up to one that is SPECIAL or invalid, or MAP_FULL."""
    x = context_at(context, 0)
    while True:
        whole = check_batch(context, True)
        if whole == 0:
            return
        status = _put_keys(context, x.batch.payload, x.batch.payload_size)
        if status != DONE:
            x.status = status
            return
        if x.batch.last_offset >= x.start_offset:
            map_state(x.map, 0).latest_offset = x.batch.last_offset
        x.position += whole
