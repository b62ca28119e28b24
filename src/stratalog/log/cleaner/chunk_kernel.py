"""How native loops go from batch to batch of a chunk, and what they know of a batch's header."""

from __future__ import annotations

from stratalog.log.cleaner.context import CORRUPT, DONE, SPECIAL, X_CHUNK, X_POSITION, X_SIZE, X_STATUS
from stratalog.records.native import as_i64, as_u8, inlined, load_be16, load_be32, native_crc32c

HEADER_SIZE = 61
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
CODEC_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
HORIZON_BIT = 0x40
_SPECIAL_BITS = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT


@inlined
def check_batch(context: int, skip_special: bool) -> int:
    """Size of the whole batch at the position; 0, with the status set, if the loop cannot take it."""
    x = as_i64(context)
    at = x[X_CHUNK] + x[X_POSITION]
    left = x[X_SIZE] - x[X_POSITION]
    if left < 17:
        x[X_STATUS] = DONE
        return 0
    length = load_be32(at + 8)
    magic = as_u8(at)[MAGIC_AT]
    if length < 14 or magic > 2 or (magic == 2 and length < HEADER_SIZE - 12):
        x[X_STATUS] = CORRUPT
        return 0
    whole = length + 12
    if whole > left:
        x[X_STATUS] = DONE
        return 0
    if magic < 2:
        x[X_STATUS] = SPECIAL
        return 0
    if native_crc32c(at + ATTRIBUTES_AT, whole - ATTRIBUTES_AT) != load_be32(at + CRC_AT) & 0xFFFF_FFFF:
        x[X_STATUS] = CORRUPT
        return 0
    if skip_special and load_be16(at + ATTRIBUTES_AT) & _SPECIAL_BITS != 0:
        x[X_STATUS] = SPECIAL
        return 0
    return int(whole)
