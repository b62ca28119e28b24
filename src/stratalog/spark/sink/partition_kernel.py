"""Kafka's murmur2 over a binary column, in native loops. No interpreter lock. Importing this module loads them."""

from __future__ import annotations

from stratalog.records.native import as_i32, as_u8, compiled, native

_MASK = 0xFFFF_FFFF
_M = 0x5BD1_E995
_SEED = 0x9747_B28C


@native
def murmur2(address: int, size: int) -> int:
    """Return Kafka's `Utils.murmur2` as an unsigned 32-bit number."""
    data = as_u8(address)
    h = (_SEED ^ size) & _MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        k = (data[at] & 0xFF) | (data[at + 1] & 0xFF) << 8 | (data[at + 2] & 0xFF) << 16 | (data[at + 3] & 0xFF) << 24
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    left = size - whole
    if left >= 3:
        h ^= (data[whole + 2] & 0xFF) << 16
    if left >= 2:
        h ^= (data[whole + 1] & 0xFF) << 8
    if left >= 1:
        h ^= data[whole] & 0xFF
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


@compiled("void(int64, int64, int64, int64, int64)")
def partitions_of(offsets: int, data: int, rows: int, count: int, out: int) -> None:
    """Write the partition, of `count`, of each of `rows` keys, as int32 to `out`."""
    starts = as_i32(offsets)
    result = as_i32(out)
    for row in range(rows):
        start = starts[row]
        result[row] = (murmur2(data + start, starts[row + 1] - start) & 0x7FFF_FFFF) % count
