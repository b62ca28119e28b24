"""The piece of a segment that is being cleaned, in a reusable buffer that loops process batch by batch.

The buffer grows for a larger batch, and shrinks again after the segment. Bytes that are not a batch, or a batch with a
wrong CRC, stop the cleaning here, before any output.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stratalog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError
from stratalog.log.cleaner import context as at
from stratalog.records import HEADER_SIZE, HEADER_SIZE_UP_TO_MAGIC, MAGIC, RecordBatch, batch_at, checked_batch_size

logger = logging.getLogger(__name__)


class RecordsFile(Protocol):
    """A `.log` that is read from start to end, such as a `LogSegment`."""

    @property
    def log_path(self) -> object:
        """The path, for messages."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def file(self) -> Readable: ...


class Readable(Protocol):
    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        """Fill the buffer from a position, and return the bytes read: fewer than its size only at the end."""


def address_of(content: Any) -> int:
    """Return the address of a numpy array's content; valid while the array lives."""
    address: int = content.__array_interface__["data"][0]
    return address


class Chunk:
    """See the module. `context` is what native loops work on (`chunk_kernel`); its address is `address`."""

    def __init__(self, size: int) -> None:
        self._size = size = max(size, HEADER_SIZE)
        self.context = at.CleaningContext()
        self.address = self.context.address
        self._reserve(size)

    def _reserve(self, size: int) -> None:
        self._buffer: npt.NDArray[np.uint8] = np.empty(size, np.uint8)
        self.context.chunk = address_of(self._buffer)

    @property
    def capacity(self) -> int:
        return len(self._buffer)

    @property
    def position(self) -> int:
        """The position in the buffer after the batches that are done."""
        position: int = self.context.position
        return position

    @property
    def status(self) -> int:
        status: int = self.context.status
        return status

    def read(self, segment: RecordsFile, position: int) -> int:
        """Fill the buffer from a position of the segment, and return the bytes read."""
        self.segment, self.segment_position = segment, position
        size = min(self.capacity, segment.size_bytes - position)
        self._view = self._buffer.data[:size]
        got = segment.file.pread_into(self._view, position)
        if got < size:
            raise CorruptRecordError(
                f"{segment.log_path}: the file ends at {position + got}, expected {segment.size_bytes} bytes"
            )
        self.context.size = size
        self.context.position = 0
        return size

    def batch(self) -> RecordBatch:
        """Return the complete batch at which a loop stopped. The view is valid until the next `read`.

        Raises CorruptRecordError for a wrong CRC, which the loops only check for batches of format 2.
        """
        if self.status == at.CORRUPT:
            checked_batch_size(self._view, self.position)
        batch = batch_at(self._view, self.position)
        if (self.status == at.CORRUPT or batch.magic != MAGIC) and batch.computed_crc != batch.crc:
            raise CorruptRecordError(f"stored CRC {batch.crc:#010x}, computed {batch.computed_crc:#010x}, of {batch!r}")
        return batch

    @contextmanager
    def errors_named(self) -> Iterator[None]:
        """Name the file and the place of the batch at the position in errors raised in this block."""
        try:
            yield
        except (CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError, ValueError) as error:
            raise CorruptRecordError(f"{self.where}: {error}") from error

    def header_address(self) -> int:
        """Return the address of the header of the batch at the position."""
        address: int = self.context.chunk + self.context.position
        return address

    def advance(self, size: int) -> None:
        """Advance past a batch of this size, which is done."""
        self.context.position += size

    def grow_for_batch(self) -> None:
        """Make room for the incomplete batch at the start of the buffer.

        Raises CorruptRecordError if it is not a batch, or does not end within the segment.
        """
        left = self.segment.size_bytes - self.segment_position
        if left < HEADER_SIZE_UP_TO_MAGIC:
            raise CorruptRecordError(f"{self.where}: {left} bytes are no batch")
        with self.errors_named():
            size = checked_batch_size(self._view, 0)
        if size > left:
            raise CorruptRecordError(f"{self.where}: a batch of {size} bytes, but the segment ends after {left}")
        logger.info("%s: buffers of %d bytes grow to %d for a batch", self.where, self.capacity, size)
        self._reserve(size)

    def restore(self) -> None:
        """Shrink the buffer to its original size."""
        if self.capacity > self._size:
            self._reserve(self._size)

    @property
    def where(self) -> str:
        """The file and position of the current batch."""
        return f"{self.segment.log_path}: position {self.segment_position + self.position}"
