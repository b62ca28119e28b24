"""The lz4 frames of message format 0: their header checksum is wrong.

The checksum of a frame header is the second byte of the XXH32 of the descriptor (flags, block size, ..). Kafka's writer
included the four bytes of the frame's magic, and format 0 keeps to that; in format 1 it is right.
"""

from __future__ import annotations

from typing import Final

from stratalog.errors import CorruptRecordError

_DESCRIPTOR_AT: Final = 4
_CONTENT_SIZE_BIT: Final = 0x08
_DICTIONARY_BIT: Final = 0x01
_MASK: Final = 0xFFFF_FFFF
_PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_PRIME_1: Final = 0x9E3779B1


def with_right_checksum(frame: memoryview) -> bytes:
    """`frame` as the rest of the world writes it. What its header checksum says is not looked at, as in Kafka."""
    return _with_checksum(frame, _DESCRIPTOR_AT)


def with_kafkas_checksum(frame: memoryview) -> bytes:
    """`frame` as Kafka writes it into messages of format 0."""
    return _with_checksum(frame, 0)


def _with_checksum(frame: memoryview, covers_from: int) -> bytes:
    flags = frame[_DESCRIPTOR_AT] if len(frame) > _DESCRIPTOR_AT else 0
    at = 6 + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)
    if at >= len(frame):
        raise CorruptRecordError(f"lz4: the {len(frame)} bytes end before the frame's header does")
    checksum = _xxh32_short(frame[covers_from:at].tobytes()) >> 8 & 0xFF
    return b"".join((frame[:at], bytes((checksum,)), frame[at + 1 :]))


def _xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of less than 16 bytes: a descriptor has up to 14."""
    assert len(data) < 16
    value = (_PRIME_5 + len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = (value + int.from_bytes(data[at : at + 4], "little") * _PRIME_3) & _MASK
        value = _rotated(value, 17) * _PRIME_4 & _MASK
    for byte in data[whole:]:
        value = (value + byte * _PRIME_5) & _MASK
        value = _rotated(value, 11) * _PRIME_1 & _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
