"""Variable-length integers as Kafka's records write them: base-128, low group first, zigzag for signed ones.

Plain Python: for headers, snapshots and single records. Bulk decode has native loops of its own in `records.columns`.
"""

from __future__ import annotations

from stratalog.errors import CorruptRecordError

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10

_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def encode_unsigned(value: int) -> bytes:
    """Encode a non-negative int."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0:
        raise ValueError(f"an unsigned varint cannot hold {value}")
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_unsigned(buffer: bytes | bytearray | memoryview, position: int, bytes_max: int) -> tuple[int, int]:
    """Decode one unsigned varint; return (value, position after it).

    Raises CorruptRecordError when it runs past the end of the buffer or past `bytes_max` bytes.
    """
    value = 0
    end = len(buffer)
    for n in range(bytes_max):
        if position + n >= end:
            raise CorruptRecordError(f"varint at position {position} runs past the end of the data at {end}")
        byte = buffer[position + n]
        value |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            return value, position + n + 1
    raise CorruptRecordError(f"varint at position {position} is longer than {bytes_max} bytes")


def encode_varlong(value: int) -> bytes:
    """Encode a signed 64-bit int (also right for 32-bit ones)."""
    return encode_unsigned(value << 1 if value >= 0 else (~value << 1) | 1)


encode_varint = encode_varlong


def decode_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Decode a signed 32-bit varint; return (value, position after it)."""
    raw, position = decode_unsigned(buffer, position, VARINT_BYTES_MAX)
    raw &= 0xFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position
