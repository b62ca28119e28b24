"""Native loops of step 1: keys are hashed where they lie, values are never touched. No interpreter lock.

They work on the context of `log.cleaner.context`: `X_MAP` is the address of the scratch that MD5 needs, `X_OUT` that of
the entries, `X_OUT_CAPACITY` and `X_OUT_SIZE` count these; `X_HAS_TOMBSTONES` counts tombstones, `X_INVALID` records
without a key, `X_RETAINED` batches without a record. An entry is three int64: the two halves of the key's MD5, and the
offset. Every read stays within the chunk or payload.
"""

from __future__ import annotations

from typing import Any

from stratalog.log.cleaner import (
    DONE,
    HEADER_SIZE,
    MALFORMED,
    OUT_FULL,
    X_CHUNK,
    X_COUNT,
    X_HAS_TOMBSTONES,
    X_INVALID,
    X_MAP,
    X_MESSAGES_READ,
    X_OUT,
    X_OUT_CAPACITY,
    X_OUT_SIZE,
    X_POSITION,
    X_RETAINED,
    X_STATUS,
    check_batch,
    md5,
)
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

ENTRY_WORDS = 3


@native
def _collect(context: int, header: int, payload: int, size: int) -> int:
    """Add an entry for each record with a key.

    DONE, MALFORMED, or OUT_FULL (and nothing is done) without room for all.
    """
    x = as_i64(context)
    scratch = x[X_MAP]
    digest = as_i64(scratch)
    base_offset = load_be64(header)
    count = load_be32(header + 57)
    if count < 0 or count > size:
        return MALFORMED
    if x[X_OUT_SIZE] + count > x[X_OUT_CAPACITY]:
        return OUT_FULL
    data = as_u8(payload)
    entry = x[X_OUT] + x[X_OUT_SIZE] * (ENTRY_WORDS * 8)
    position = keyless = tombstones = 0
    for _ in range(count):
        length, position = varint(data, position, size, True)
        if position < 0 or length < 1 or length > size - position:
            return MALFORMED
        end = position + length
        if end + OVERRUN <= size:
            fields = record_fields(data, position, end, False)
        else:
            fields = record_fields(data, position, end, True)
        _, offset_delta, key_size, key_start, value_size, _, header_count, position = fields
        if position >= 0 and header_count > 0:
            position = skip_headers(data, position, end, header_count)
        if position != end:
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
    x[X_RETAINED] += count == 0
    x[X_OUT_SIZE] += count - keyless
    x[X_MESSAGES_READ] += count
    x[X_INVALID] += keyless
    x[X_HAS_TOMBSTONES] += tombstones
    return DONE


@compiled("int64(int64, int64, int64, int64)")
def collect_keys(context: int, header: int, payload: int, size: int) -> int:
    """The entries of the batch whose header is given and whose decompressed records are the payload; see `_collect`."""
    return _collect(context, header, payload, size)


@compiled("void(int64)")
def collect_chunk(context: int) -> None:
    """The entries of batch after batch, up to one that is SPECIAL or in some way wrong, or OUT_FULL, counted."""
    x = as_i64(context)
    while True:
        whole = check_batch(context, True)
        if whole == 0:
            return
        at = x[X_CHUNK] + x[X_POSITION]
        status = _collect(context, at, at + HEADER_SIZE, whole - HEADER_SIZE)
        if status != DONE:
            x[X_STATUS] = status
            return
        x[X_COUNT] += 1
        x[X_POSITION] += whole


@compiled("void(int64[:, ::1], int64, int64, int64[::1], int64[:, ::1], uint32[::1])")
def scatter(entries: Any, base_offset: int, buckets: int, ends: Any, hashes: Any, offsets: Any) -> None:
    """Order entries by bucket, and within one as they come: into hashes, and offsets relative to `base_offset`.

    The bucket is that of the first four bytes of the hash, in ranges of equal width. `ends`, which has a place for each
    bucket and one more, gets the place behind the last entry of each bucket, from its second place on; the first is 0.
    """
    ends[:] = 0
    for index in range(len(entries)):
        ends[((entries[index, 0] & 0xFFFF_FFFF) * buckets >> 32) + 1] += 1
    for bucket in range(buckets):
        ends[bucket + 1] += ends[bucket]
    for index in range(len(entries)):  # `ends` is where the next one of each bucket goes
        bucket = (entries[index, 0] & 0xFFFF_FFFF) * buckets >> 32
        at = ends[bucket]
        ends[bucket] = at + 1
        hashes[at, 0] = entries[index, 0]
        hashes[at, 1] = entries[index, 1]
        offsets[at] = entries[index, 2] - base_offset
    for bucket in range(buckets, 0, -1):
        ends[bucket] = ends[bucket - 1]
    ends[0] = 0
