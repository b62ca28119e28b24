"""Byte layout of message formats 0 and 1 (magic 0 and 1), as brokers before 0.11 wrote them. Big-endian.

    at     size  field
     0        8  offset: of the message; of the last message inside, for a wrapper
     8        4  length: bytes after this field (whole message = length + 12)
    12        4  CRC-32 (the one of zlib) of everything from `magic` to the end
    16        1  magic = 0 or 1
    17        1  attributes: bits 0-2 codec, bit 3 timestamp type (format 1; 1 is LogAppendTime)
    18        8  timestamp in ms, -1 for none: format 1 only
    18 / 26   4  key length, -1 for null
     .        .  key
     .        4  value length, -1 for null
     .        .  value

There are no batches: an uncompressed message stands by itself. A codec makes it a wrapper, without key, whose value is
messages in this same layout, compressed as a whole:

    format 0  the messages inside have their absolute offsets
    format 1  they are numbered from 0 and the wrapper has the last one's offset: absolute = inner + wrapper's - last
              inner The wrapper's timestamp is the largest of theirs; with LogAppendTime it is that of each.

Source: Kafka's `LegacyRecord` and `AbstractLegacyRecordBatch`. `docs/formats/record_batch.md` has a worked example.
"""

from __future__ import annotations

import struct
from typing import Final

from typing_extensions import Buffer

from stratalog.records import batch_format as fmt

MAGIC_MAX: Final = 1
CRC_AT: Final = 12
CRC_COVERS_FROM: Final = 16
ATTRIBUTES_AT: Final = 17
TIMESTAMP_AT: Final = 18

#: Where the key length stands, for each magic.
KEY_AT: Final = (18, 26)
#: Bytes of a message with null key and null value, for each magic.
SIZE_MIN: Final = (26, 34)
NO_TIMESTAMP_TYPE: Final = -1
"""Timestamp type of a message of format 0."""

# (offset, length, crc, magic, attributes), and the timestamp in format 1
_HEADER: Final = struct.Struct(">qiIbB")
_TIMESTAMP: Final = struct.Struct(">q")
_ATTRIBUTES_MASK: Final = (fmt.CODEC_MASK, fmt.CODEC_MASK | fmt.LOG_APPEND_TIME_BIT)


def read_header(buffer: Buffer, at: int) -> tuple[int, ...]:
    """Return the message at `at` in the terms of `batch_format.HEADER`, for loops over headers of any format.

    Facts that only the records inside a wrapper have are left open: base offset is the last offset, the record count is
    1, or -1 for a wrapper. Leader epoch, producer and sequence are -1, as is the timestamp in format 0. Raises
    struct.error without the bytes before the key; a magic above 1 is the caller's mistake.
    """
    offset, length, crc, magic, attributes = _HEADER.unpack_from(buffer, at)
    attributes &= _ATTRIBUTES_MASK[magic]
    timestamp = _TIMESTAMP.unpack_from(buffer, at + TIMESTAMP_AT)[0] if magic else fmt.NO_TIMESTAMP
    count = -1 if attributes & fmt.CODEC_MASK else 1
    return (offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count)


def find_header(buffer: Buffer, at: int, end: int) -> tuple[int, ...] | None:
    """Return `read_header` if a message of format 0 or 1 may begin at `at`, with its header before `end`; else None."""
    if end - at < fmt.HEADER_SIZE_UP_TO_MAGIC:
        return None
    magic = memoryview(buffer)[at + fmt.MAGIC_AT]
    if magic > MAGIC_MAX or end - at < KEY_AT[magic]:
        return None
    header = read_header(buffer, at)
    return header if header[1] >= fmt.LENGTHS_MIN[magic] else None
