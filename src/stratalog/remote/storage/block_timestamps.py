"""The timestamps of each block of a segment's records, as a manifest notes them: which blocks a time range may be in.

A batch counts where it begins. Its least time is that of its first record (of its append, with LogAppendTime): headers
alone are read, so a later record of a batch may be older than that; none is newer than its largest.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from stratalog.log.scan import scan_headers
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_format import LOG_APPEND_TIME
from stratalog.util.filesystem import File

#: A least time that nothing is known of.
NO_TIMESTAMP = -1

_PAIR = struct.Struct(">qq")
_NONE = (0, -1)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Milliseconds, both ends included."""

    least_ms: int
    largest_ms: int


@dataclass(frozen=True, slots=True)
class BlockTimestamps:
    """A range for each block, None where no batch begins. `str` is base64 of two big-endian int64 a block, least and
    largest time, 0 and -1 for none.

    ValueError when the bytes are not a whole number of pairs.
    """

    packed: bytes

    def __post_init__(self) -> None:
        if len(self.packed) % _PAIR.size:
            raise ValueError(f"{len(self.packed)} bytes of timestamps are no pairs")

    @classmethod
    def of(cls, ranges: Iterable[TimeRange | None]) -> BlockTimestamps:
        pairs = (_NONE if each is None else (each.least_ms, each.largest_ms) for each in ranges)
        return cls(b"".join(_PAIR.pack(*pair) for pair in pairs))

    @classmethod
    def parse(cls, text: str) -> BlockTimestamps:
        """What `str` gave. ValueError for anything else."""
        return cls(base64.b64decode(text, validate=True))

    def __str__(self) -> str:
        return base64.b64encode(self.packed).decode()

    def __len__(self) -> int:
        return len(self.packed) // _PAIR.size

    def __getitem__(self, block: int) -> TimeRange | None:
        if not 0 <= block < len(self):
            raise IndexError(block)
        pair = _PAIR.unpack_from(self.packed, block * _PAIR.size)
        return None if pair == _NONE else TimeRange(*pair)


def block_timestamps(log: File, block_bytes: int) -> BlockTimestamps:
    """Those of a `.log`. CorruptRecordError for bytes that are no batches."""
    size = log.size()
    found: list[TimeRange | None] = [None] * -(-size // block_bytes)
    block, low, high = -1, 0, 0
    for position, batch in scan_headers(log, 0, size):
        least, largest = _least(batch), batch.max_timestamp
        if position // block_bytes == block:
            low, high = min(low, least), max(high, largest)
            continue
        if block >= 0:
            found[block] = TimeRange(low, high)
        block, low, high = position // block_bytes, least, largest
    if block >= 0:
        found[block] = TimeRange(low, high)
    return BlockTimestamps.of(found)


def _least(batch: RecordBatch) -> int:
    if batch.timestamp_type == LOG_APPEND_TIME:
        return batch.max_timestamp
    if batch.has_delete_horizon:
        return NO_TIMESTAMP  # the header has the horizon in place of the first timestamp
    return min(batch.base_timestamp, batch.max_timestamp)
