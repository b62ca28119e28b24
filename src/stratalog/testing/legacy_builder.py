"""Write messages of formats 0 and 1 as Kafka's `MemoryRecordsBuilder` does; byte for byte, if uncompressed.

Brokers no longer make such messages, but cleaning a log keeps the format.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Final

from stratalog.records import Codec, RecordLike, batch_format as fmt, compress
from stratalog.records.legacy import message_format as legacy, with_kafkas_checksum

_PREFIX: Final = struct.Struct(">qiI")


def build_legacy(
    records: Iterable[RecordLike],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int | None = None,
    timestamp_type: int = fmt.CREATE_TIME,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Return `records` one after the other; with a codec, in a wrapper.

    `base_offset` is what the offsets in a wrapper of format 1 count from, by default the first record's.
    `log_append_time_ms` implies timestamp type 1. Raises ValueError for an empty list, headers, zstd, or another magic.
    """
    rows = list(records)
    if magic not in (0, 1) or codec is Codec.ZSTD or not rows or any(row.headers for row in rows):
        raise ValueError(
            f"message format {magic} with {codec.name}, {len(rows)} records: no such messages can be written"
        )
    if log_append_time_ms is not None:
        timestamp_type = fmt.LOG_APPEND_TIME
    attributes = fmt.LOG_APPEND_TIME_BIT if magic and timestamp_type == fmt.LOG_APPEND_TIME else 0
    if codec is Codec.NONE:
        return _messages(rows, magic, attributes, log_append_time_ms, 0)
    first = rows[0].offset if base_offset is None else base_offset
    value = compress(codec, _messages(rows, magic, attributes, log_append_time_ms, first if magic else 0), level)
    if codec is Codec.LZ4 and magic == 0:
        value = with_kafkas_checksum(memoryview(value))
    timestamp = max(row.timestamp_ms for row in rows) if log_append_time_ms is None else log_append_time_ms
    return _message(rows[-1].offset, magic, attributes | codec, timestamp, None, value)


def _messages(
    rows: Iterable[RecordLike], magic: int, attributes: int, append_time_ms: int | None, first_offset: int
) -> bytes:
    """Each record as a message, offsets counted from `first_offset`."""
    return b"".join(
        _message(
            row.offset - first_offset,
            magic,
            attributes,
            row.timestamp_ms if append_time_ms is None else append_time_ms,
            row.key,
            row.value,
        )
        for row in rows
    )


def _message(
    offset: int, magic: int, attributes: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    covered = b"".join(
        (
            bytes((magic, attributes)),
            fmt.INT64.pack(timestamp_ms) if magic == legacy.MAGIC_MAX else b"",
            _sized(key),
            _sized(value),
        )
    )
    return _PREFIX.pack(offset, 4 + len(covered), zlib.crc32(covered)) + covered


def _sized(data: bytes | None) -> bytes:
    return fmt.INT32.pack(-1) if data is None else fmt.INT32.pack(len(data)) + data
