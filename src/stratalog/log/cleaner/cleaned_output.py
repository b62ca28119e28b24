"""Collect the retained batches in a buffer, and write them to the new segment when the buffer is full.

An output belongs to one new segment and ends with it, so that batches of a failed cleaning never reach another log.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError
from stratalog.log.append import RELATIVE_OFFSET_MAX, BatchFacts
from stratalog.log.cleaner import context as at, output_kernel
from stratalog.log.cleaner.chunk import Chunk, address_of
from stratalog.log.segment import LogSegment
from stratalog.records import HEADER_SIZE, RECORD_SIZE_MIN, RecordBatch


class CleanedOutput:
    """See the module. Native loops write into it through the context of the chunk that they read from.

    Memory, for a buffer of n bytes: n for the output, 0.7 n for the table of batches, 0.15 n for a flag a record.
    """

    def __init__(self, size: int, chunk: Chunk, cleaned: LogSegment) -> None:
        """Fill `chunk` from now on, and write the records that stay to `cleaned`."""
        self._size = size = max(size, HEADER_SIZE)
        self._chunk = chunk
        self._cleaned = cleaned
        self._reserve_output(size)
        self._reserve_flags(max(size // RECORD_SIZE_MIN, 1))
        context = chunk.context
        context.index_interval, context.since_index_entry = cleaned.index_interval_bytes, -1

    def _reserve_output(self, size: int) -> None:
        context = self._chunk.context
        self._output: npt.NDArray[np.uint8] = np.empty(size, np.uint8)
        self._table: npt.NDArray[np.void] = np.empty(size // HEADER_SIZE + 1, np.dtype(at.CleanedRow))
        context.out, context.out_capacity = address_of(self._output), size
        context.table, context.table_capacity = address_of(self._table), len(self._table)
        context.out_size = context.table_rows = 0

    def _reserve_flags(self, count: int) -> None:
        self._flags: npt.NDArray[np.uint8] = np.empty(count, np.uint8)
        self._chunk.context.flags = address_of(self._flags)
        self._chunk.context.flags_capacity = len(self._flags)

    def reserve_flags(self, count: int) -> None:
        """Make room for the flags of as many records in one batch."""
        if len(self._flags) < count:
            self._reserve_flags(count)

    def restore(self) -> None:
        """Shrink the buffers, which must be empty, to their original sizes."""
        assert not self.size, "what waits is written before the buffers are given back"
        if len(self._output) > self._size:
            self._reserve_output(self._size)

    @property
    def size(self) -> int:
        """Bytes that wait to be written."""
        size: int = self._chunk.context.out_size
        return size

    def room(self) -> int:
        return len(self._output) - self.size

    def add(self, data: Buffer, batch: RecordBatch) -> int:
        """Append one batch with the header `batch`. If there is no room for it, write the buffer first.

        Return the bytes written.
        """
        view = memoryview(data)
        context = self._chunk.context
        written = 0
        if view.nbytes > self.room() or context.table_rows == len(self._table):
            written = self.write()
            if view.nbytes > len(self._output):
                self._reserve_output(view.nbytes)
        end = self.size
        self._output.data[end : end + view.nbytes] = view
        row = (
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
            view.nbytes,
            batch.partition_leader_epoch,
        )
        self._table[context.table_rows] = row
        context.table_rows += 1
        context.out_size += view.nbytes
        return written

    def make_room(self, size: int, count: int) -> int:
        """Write the buffer, so that there is room for a filtered batch of `count` records and `size` bytes."""
        written = self.write()
        if size > len(self._output):
            self._reserve_output(size)
        self.reserve_flags(count)
        return written

    def write(self) -> int:
        """Append the buffer to the segment, and return the bytes written."""
        size, cleaned = self.size, self._cleaned
        if size:
            context = self._chunk.context
            last_offset = int(self._table[context.table_rows - 1]["last_offset"])
            if last_offset - cleaned.base_offset > RELATIVE_OFFSET_MAX:
                raise CorruptRecordError(
                    f"{self._chunk.where}: the segment's offsets reach to {last_offset}, too far from"
                    f" {cleaned.base_offset}; it is split when the log is opened again"
                )
            output_kernel.merge_rows(self._chunk.address)
            facts = [BatchFacts(*row) for row in self._table[: context.table_rows].tolist()]
            cleaned.append([self._output.data[:size]], size, facts)
            context.out_size = context.table_rows = 0
        return size
