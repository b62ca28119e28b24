"""Byte layout of a RecordBatch, message format 2 (magic 2). Everything is big-endian.

    at  size  field
     0     8  base offset: offset of the first record that was ever in the batch
     8     4  length: bytes after this field (whole batch = length + 12)
    12     4  partition leader epoch
    16     1  magic = 2
    17     4  CRC-32C of everything from `attributes` to the end
    21     2  attributes (bits below)
    23     4  last offset delta: last offset = base offset + this
    27     8  base timestamp: records hold deltas to it; the delete horizon when that attribute bit is set
    35     8  max timestamp: of the records, or the append time for every record when the type is LogAppendTime
    43     8  producer id, -1 for none
    51     2  producer epoch, -1 for none
    53     4  base sequence, -1 for none
    57     4  record count
    61     .  records, compressed as a whole when a codec is set

Base offset, length and leader epoch are outside the CRC, so a broker assigns them in place. Source: the
storage document ("Record Batch Format"), Kafka's `DefaultRecordBatch`. `docs/formats/record_batch.md` has a
worked example.
"""

from __future__ import annotations

import struct
from typing import Final

BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
PARTITION_LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
RECORD_COUNT_AT: Final = 57

HEADER_SIZE: Final = 61
"""Bytes before the records."""
LOG_OVERHEAD: Final = 12
"""Bytes of base offset and length: what the length field does not count."""
LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
"""Smallest length field of a magic 2 batch."""
LEGACY_LENGTH_MIN: Final = 14
"""Smallest length field of any message format (Kafka's `LegacyRecord.RECORD_OVERHEAD_V0`)."""
LENGTHS_MIN: Final = (14, 22, LENGTH_MIN)
"""Smallest length field for each magic."""
BATCH_SIZE_MIN: Final = 26
"""Bytes of the smallest batch of any format."""
HEADER_SIZE_UP_TO_MAGIC: Final = 17
"""The number of bytes that contain size and format of a batch of any magic."""
RECORD_SIZE_MIN: Final = 7
"""Bytes of the smallest record: length, attributes, two deltas, null key, null value, no headers."""

MAGIC: Final = 2

# (base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp, max timestamp,
#  producer id, producer epoch, base sequence, record count)
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
INT64: Final = struct.Struct(">q")
INT32: Final = struct.Struct(">i")
INT16: Final = struct.Struct(">h")
UINT32: Final = struct.Struct(">I")

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
KNOWN_BITS: Final = 0x7F

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

SEQUENCE_MAX: Final = 0x7FFF_FFFF


def increment_sequence(sequence: int, increment: int) -> int:
    """`sequence + increment`, going on at 0 after 2^31-1 (Kafka's `DefaultRecordBatch.incrementSequence`)."""
    total = sequence + increment
    return total if total <= SEQUENCE_MAX else total - SEQUENCE_MAX - 1
