"""Random access to the batches of a `.log` by position."""

from __future__ import annotations

from typing import Final

from typing_extensions import Buffer

from stratalog.cli.dump.source import DumpSource
from stratalog.errors import StratalogError
from stratalog.records import (
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    MAGIC,
    MAGIC_AT,
    RecordBatch,
    batch_at,
    checked_batch_size,
)

#: Size in bytes of a read that searches batches; a larger batch takes another read.
READ_AHEAD: Final = 64 * 1024


class BatchReader:
    """Batches by position, with a little read-ahead. Closing it closes the source."""

    def __init__(self, source: DumpSource) -> None:
        self.source = source
        self._data: Buffer = b""
        self._at = 0

    def batch(self, position: int, *, whole: bool) -> RecordBatch | None:
        """Return the batch that begins at `position`, or None; with its records only if `whole`."""
        if not 0 <= position <= self.source.size - HEADER_SIZE_UP_TO_MAGIC:
            return None
        data = self._bytes(position, min(HEADER_SIZE, self.source.size - position))
        try:
            size = checked_batch_size(data, position - self._at)
        except StratalogError:
            return None
        if position + size > self.source.size:
            return None
        if whole or memoryview(data)[position - self._at + MAGIC_AT] != MAGIC:
            data = self._bytes(position, size)  # the offsets of an old wrapper are in its payload
        return batch_at(data, position - self._at)

    def last_offset_at(self, position: int) -> int | None:
        """Last offset of the batch at `position`; None if there is none."""
        batch = self.batch(position, whole=False)
        return None if batch is None else batch.last_offset

    def pread(self, size: int, position: int) -> Buffer:
        """Return raw bytes."""
        end = min(position + size, self.source.size)
        data = self._bytes(position, end - position)
        return memoryview(data)[position - self._at : end - self._at]

    def is_sound(self, position: int) -> bool:
        """Return whether a complete batch with a valid CRC begins at `position`."""
        batch = self.batch(position, whole=True)
        return batch is not None and batch.is_crc_valid

    def close(self) -> None:
        self.source.close()

    def _bytes(self, position: int, size: int) -> Buffer:
        if position < self._at or position + size > self._at + memoryview(self._data).nbytes:
            self._data, self._at = self.source.read(position, position + max(size, READ_AHEAD)), position
        return self._data
