"""Native loops of step 1: hash keys in place, without touching values. They release the interpreter lock.

They work on the context of `log.cleaner`: `map` is the address of MD5's scratch memory and `out` that of the entries,
which `out_capacity` and `out_size` count. `has_tombstones` counts tombstones, `invalid` records without a key,
`retained` batches without a record. An entry is three int64: the two halves of the key's MD5, and the offset. Every
read stays within the chunk or payload.
"""

from __future__ import annotations

from typing import Any

from stratalog.log.cleaner import DONE, MALFORMED, OUT_FULL, check_batch, context_at, md5
from stratalog.records.native import as_i64, as_u8, compiled, native, read_header, whole_record

ENTRY_WORDS = 3


@native
def _collect(context: int, payload: int, size: int) -> int:
    """Add an entry for each keyed record of the context's batch. Return DONE, MALFORMED or OUT_FULL."""
    x = context_at(context, 0)
    scratch = x.map
    digest = as_i64(scratch)
    base_offset = x.batch.base_offset
    count = x.batch.record_count
    if count < 0 or count > size:
        return MALFORMED
    if x.out_size + count > x.out_capacity:
        return OUT_FULL
    data = as_u8(payload)
    entry = x.out + x.out_size * (ENTRY_WORDS * 8)
    position = keyless = tombstones = 0
    for _ in range(count):
        _, offset_delta, key_size, key_start, value_size, position = whole_record(data, position, size)
        if position < 0:
            return MALFORMED
        tombstones += value_size < 0
        if key_size < 0:
            keyless += 1
            continue
        md5(payload + key_start, key_size, scratch)
        words = as_i64(entry)
        words[0] = digest[0]
        words[1] = digest[1]
        words[2] = base_offset + offset_delta
        entry += ENTRY_WORDS * 8
    if position != size:
        return MALFORMED
    x.retained += count == 0
    x.out_size += count - keyless
    x.messages_read += count
    x.invalid += keyless
    x.has_tombstones += tombstones
    return DONE


@compiled("int64(int64, int64, int64, int64)")
def collect_keys(context: int, header: int, payload: int, size: int) -> int:
    """Add the entries of the batch with this header, whose decompressed records are the payload. See `_collect`."""
    read_header(header, context_at(context, 0).batch)
    return _collect(context, payload, size)


@compiled("void(int64)")
def collect_chunk(context: int) -> None:
    """Collect the entries of batch after batch, up to one that is SPECIAL or malformed, or OUT_FULL."""
    x = context_at(context, 0)
    while True:
        whole = check_batch(context, True)
        if whole == 0:
            return
        status = _collect(context, x.batch.payload, x.batch.payload_size)
        if status != DONE:
            x.status = status
            return
        x.count += 1
        x.position += whole


@compiled("void(int64[:, ::1], int64, int64, int64[::1], int64[:, ::1], uint32[::1])")
def scatter(entries: Any, base_offset: int, buckets: int, ends: Any, hashes: Any, offsets: Any) -> None:
    """Order entries by bucket, stably: into hashes, and offsets relative to `base_offset`.

    Buckets are ranges of equal width of the first four bytes of the hash. `ends` has one slot more than there are
    buckets; slot n + 1 gets the end of bucket n, and slot 0 gets 0.
    """
    ends[:] = 0
    for index in range(len(entries)):
        ends[((entries[index, 0] & 0xFFFF_FFFF) * buckets >> 32) + 1] += 1
    for bucket in range(buckets):
        ends[bucket + 1] += ends[bucket]
    for index in range(len(entries)):  # `ends` is the place of the next one of each bucket
        bucket = (entries[index, 0] & 0xFFFF_FFFF) * buckets >> 32
        at = ends[bucket]
        ends[bucket] = at + 1
        hashes[at, 0] = entries[index, 0]
        hashes[at, 1] = entries[index, 1]
        offsets[at] = entries[index, 2] - base_offset
    for bucket in range(buckets, 0, -1):
        ends[bucket] = ends[bucket - 1]
    ends[0] = 0
