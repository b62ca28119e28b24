"""The entries of offset and time indexes, read from their files."""

from __future__ import annotations

from pathlib import Path

from stratalog.log.format import OffsetIndexFormat, OffsetPosition, TimestampOffset, offset_index_format
from stratalog.log.index import time_index
from stratalog.util import REAL_FILESYSTEM, FileSystem


def offset_entries(
    path: Path, base_offset: int, form: OffsetIndexFormat, fs: FileSystem = REAL_FILESYSTEM
) -> list[OffsetPosition]:
    """Return the entries of an offset index in this format, without the zeros behind them."""
    data = fs.read_bytes(path)
    used = min(
        offset_index_format.used_entries(data, form) * form.entry_size,
        len(data) // form.entry_size * form.entry_size,
    )
    return list(offset_index_format.decode_entries(memoryview(data)[:used], base_offset, form))


def time_entries(path: Path, base_offset: int, fs: FileSystem = REAL_FILESYSTEM) -> list[TimestampOffset]:
    """Return the entries of a time index, without the zeros behind them."""
    data = fs.read_bytes(path)
    used = -(-offset_index_format.used_size(data) // time_index.ENTRY_SIZE) * time_index.ENTRY_SIZE
    return list(time_index.decode_entries(memoryview(data)[:used], base_offset))
