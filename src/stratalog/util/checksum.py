"""CRC-32C (Castagnoli) in hardware, over any contiguous buffer, without the interpreter lock."""

from __future__ import annotations

from crc32c import crc32c as _native
from typing_extensions import Buffer


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC-32C of `data`, continued from `value`, as an unsigned 32-bit int."""
    return _native(data, value)
