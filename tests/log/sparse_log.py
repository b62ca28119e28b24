"""Batches of up to 2 GiB that take no room: a real header, with the CRC of the zeros behind it, in a hole of the
file."""

from __future__ import annotations

from functools import cache

from stratalog.log.append.preparation import BatchFacts
from stratalog.log.format.values import LogOffset
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_format import ATTRIBUTES_AT, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC
from stratalog.util.checksum import crc32c

_ZEROS = bytes(1 << 26)


@cache
def giant_header(offset: int, size: int, timestamp: int = 1) -> bytes:
    """The header of a sound batch of `size` bytes with one offset, whose records are zeros."""
    fields = [offset, size - LOG_OVERHEAD, 0, MAGIC, 0, 0, 0, timestamp, timestamp, -1, -1, -1, 1]
    crc = crc32c(HEADER.pack(*fields)[ATTRIBUTES_AT:])
    rest = size - HEADER_SIZE
    while rest:
        count = min(rest, len(_ZEROS))
        crc = crc32c(memoryview(_ZEROS)[:count], crc)
        rest -= count
    fields[4] = crc
    return HEADER.pack(*fields)


def append_giants(log: PartitionLog, *sizes: int) -> list[int]:
    """Append giant batches to the active segment, as if they had come in; their offsets."""
    segment, offsets = log.active_segment, []
    for size in sizes:
        offset, position = log.log_end_offset, segment.size_bytes
        segment.append([giant_header(offset, size)], size, [BatchFacts(offset, offset, 1, size, 0)])
        segment.file.truncate(segment.size_bytes)
        log._local.end = LogOffset(offset + 1, segment.base_offset, segment.size_bytes)
        assert segment.size_bytes == position + size
        offsets.append(offset)
    return offsets
