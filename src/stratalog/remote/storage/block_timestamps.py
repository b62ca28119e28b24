"""Timestamps of each block of a segment's records, to find the blocks of a time range.

A batch counts in the block where it begins. Its least time is that of its first record (of its append, with
LogAppendTime). Only headers are read, so a later record of a batch may be older; none is newer than its largest.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stratalog.log import scan_headers
from stratalog.records import DELETE_HORIZON_BIT, LOG_APPEND_TIME, LOG_APPEND_TIME_BIT, RecordBatch
from stratalog.util import File

#: An unknown least time.
NO_TIMESTAMP = -1

_PAIR = struct.Struct(">qq")
_NONE = (0, -1)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Milliseconds, both ends inclusive."""

    least_ms: int
    largest_ms: int


@dataclass(frozen=True, slots=True)
class BlockTimestamps:
    """A range for each block, None where no batch begins.

    `str` is base64 of two big-endian int64 a block, least and largest time, 0 and -1 for none.

    Raises ValueError unless the bytes are pairs.
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
        """Parse the result of `str`. Raises ValueError."""
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


class BlockTimes:
    """Collects the timestamps of the blocks of a `.log` from its batches in order."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._found: dict[int, TimeRange] = {}
        # State of the last batch's block, as plain ints: updated for every batch.
        self._block, self._low, self._high = -1, 0, 0

    def add(self, position: int, batch: RecordBatch) -> None:
        self._add(position // self._block_bytes, _least(batch), batch.max_timestamp)

    def _add(self, block: int, least: int, largest: int) -> None:
        if block == self._block:
            self._low, self._high = min(self._low, least), max(self._high, largest)
            return
        self._end_block()
        self._block, self._low, self._high = block, least, largest

    def add_rows(self, rows: Any) -> None:
        """Add consecutive batches of format 2 as rows of `records.native.header_scan`."""
        import numpy as np  # start-up cost

        attributes, largest = rows["attributes"], rows["max_timestamp"]
        first = np.where(attributes & DELETE_HORIZON_BIT, NO_TIMESTAMP, np.minimum(rows["base_timestamp"], largest))
        least = np.where(attributes & LOG_APPEND_TIME_BIT, largest, first)
        blocks = rows["position"] // self._block_bytes
        begins = np.flatnonzero(np.diff(blocks, prepend=-1))
        lows, highs = np.minimum.reduceat(least, begins), np.maximum.reduceat(largest, begins)
        for block, low, high in zip(blocks[begins].tolist(), lows.tolist(), highs.tolist(), strict=True):
            self._add(block, low, high)

    def found(self, blocks: int) -> BlockTimestamps:
        self._end_block()
        return BlockTimestamps.of(self._found.get(block) for block in range(blocks))

    def _end_block(self) -> None:
        if self._block >= 0:
            self._found[self._block] = TimeRange(self._low, self._high)


def block_timestamps(log: File, block_bytes: int) -> BlockTimestamps:
    """Return those of a `.log`. CorruptRecordError for invalid batches."""
    size = log.size()
    times = BlockTimes(block_bytes)
    for position, batch in scan_headers(log, 0, size):
        times.add(position, batch)
    return times.found(-(-size // block_bytes))


def _least(batch: RecordBatch) -> int:
    if batch.timestamp_type == LOG_APPEND_TIME:
        return batch.max_timestamp
    if batch.has_delete_horizon:
        return NO_TIMESTAMP  # the header has the horizon in place of the first timestamp
    return min(batch.base_timestamp, batch.max_timestamp)
