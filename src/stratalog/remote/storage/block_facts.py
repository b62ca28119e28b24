"""Checksums and timestamps of the blocks of a segment's records, gathered while they are read for another reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stratalog.records import RecordBatch
from stratalog.remote.storage.block_timestamps import BlockTimes, BlockTimestamps
from stratalog.util import crc32c


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """The CRC-32C of each block, and the timestamps of its batches; None for invalid batches."""

    checksums: tuple[int, ...]
    timestamps: BlockTimestamps | None


class BlockFactsReader:
    """Takes the records from start to end, in pieces of any size, and all their batches."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._times = BlockTimes(block_bytes)
        self._checksums: list[int] = []
        self._crc = 0
        self._filled = 0

    def add_batch(self, position: int, batch: RecordBatch) -> None:
        self._times.add(position, batch)

    def add_rows(self, rows: Any) -> None:
        """Add batches as rows of `records.native.header_scan`."""
        self._times.add_rows(rows)

    def add_bytes(self, data: memoryview) -> None:
        while data:
            part = data[: self._block_bytes - self._filled]
            self._crc = crc32c(part, self._crc)
            self._filled += len(part)
            data = data[len(part) :]
            if self._filled == self._block_bytes:
                self._end_block()

    def facts(self) -> BlockFacts:
        """Return the result. Call it once, at the end."""
        if self._filled:
            self._end_block()
        return BlockFacts(tuple(self._checksums), self._times.found(len(self._checksums)))

    def _end_block(self) -> None:
        self._checksums.append(self._crc)
        self._crc = self._filled = 0
