"""The batches of a `.log`, a window at a time: headers and CRCs by native loops, as numpy rows.

What is no batch ends nothing: the scan goes on at the next batch with a right CRC behind it, if there is one. Memory is
bound by the window.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stratalog.errors import StratalogError
from stratalog.log.check import batch_kernel as kernel
from stratalog.records.batch import RecordBatch, batch_at, checked_batch_size
from stratalog.records.batch_format import (
    ATTRIBUTES_AT,
    BATCH_SIZE_MIN,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
)
from stratalog.util.crc32c import crc32c
from stratalog.util.filesystem import File

WINDOW_SIZE: Final = 8 * 1024 * 1024
_ROWS_MAX: Final = 16_384


@dataclass(frozen=True, slots=True)
class Window:
    """Batches that lie one behind the other: `rows` (see `batch_kernel`), with positions in the file; and their bytes, of a
    batch that is larger than a window its header only.
    """

    rows: Any
    data: memoryview
    #: Position in the file of the first byte of `data`.
    position: int

    def batch(self, row: Any) -> RecordBatch:
        return batch_at(self.data, int(row[kernel.R_POSITION]) - self.position)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes [position, end) are no batch. `resumes`: a sound batch stands at `end`."""

    position: int
    end: int
    reason: str
    resumes: bool


def scan_batches(file: File, size: int, window_size: int = WINDOW_SIZE) -> Iterator[Window | Unreadable]:
    """Everything in the first `size` bytes of a `.log`, in order."""
    position = 0
    while position < size:
        data = memoryview(file.pread(min(window_size, size - position), position))
        rows, end, status = _scan(data)
        if len(rows):
            rows[:, kernel.R_POSITION] += position
            yield Window(rows, data, position)
            position += end
        elif (window := _single(file, size, position, status, window_size)) is not None:
            yield window
            position += int(window.rows[0, kernel.R_SIZE])
        else:
            position = yield from _pass_over(file, size, position, window_size)


def _scan(data: memoryview) -> tuple[Any, int, int]:
    """Rows of the batches at the start of a window, where they end, and why."""
    source = np.frombuffer(data, np.uint8)
    rows = np.empty((_ROWS_MAX, kernel.ROW_WORDS), np.int64)
    result = np.zeros(kernel.RESULT_WORDS, np.int64)
    kernel.scan(
        int(source.ctypes.data), len(source), int(rows.ctypes.data), _ROWS_MAX, int(result.ctypes.data)
    )
    count, end, status = (int(word) for word in result)
    return rows[:count], end, status


def _single(file: File, size: int, position: int, status: int, window_size: int) -> Window | None:
    """The one batch at `position` that the native loop left; None if there is none."""
    if status == kernel.CUT:
        return _large_batch(file, size, position, window_size)
    return _old_message(file, size, position) if status == kernel.OLD_FORMAT else None


def _large_batch(file: File, size: int, position: int, window_size: int) -> Window | None:
    """A batch that does not fit a window, with its header only; None if there is none or it is not whole."""
    data = memoryview(file.pread(HEADER_SIZE, position))
    if len(data) < HEADER_SIZE or position + (needed := checked_batch_size(data, 0)) > size:
        return None
    batch = RecordBatch(data)
    crc = crc32c(data[ATTRIBUTES_AT:])
    for start in range(position + HEADER_SIZE, position + needed, window_size):
        crc = crc32c(file.pread(min(window_size, position + needed - start), start), crc)
    row = (
        position, batch.base_offset, batch.last_offset, needed, batch.partition_leader_epoch, batch.attributes,
        batch.max_timestamp, batch.producer_id, batch.record_count, crc == batch.crc, batch.magic,
    )  # fmt: skip
    return Window(np.array([row], np.int64), data, position)


def _old_message(file: File, size: int, position: int) -> Window | None:
    """A message of format 0 or 1 as a row; None if it is not whole or its offsets cannot be read."""
    try:
        needed = checked_batch_size(file.pread(HEADER_SIZE_UP_TO_MAGIC, position), 0)
        if position + needed > size:
            return None
        data = memoryview(file.pread(needed, position))
        batch = batch_at(data)
        is_sound = batch.is_crc_valid
        base_offset = batch.base_offset if is_sound else batch.last_offset
    except StratalogError:
        return None
    row = (
        position, base_offset, batch.last_offset, needed, -1, batch.attributes, batch.max_timestamp, -1, 1, is_sound,
        batch.magic,
    )  # fmt: skip
    return Window(np.array([row], np.int64), data, position)


def _pass_over(file: File, size: int, position: int, window_size: int) -> Generator[Unreadable, None, int]:
    """Tell what is no batch, and find where batches go on: a sound one is looked for in all that is left."""
    reason = _reason(file, size, position)
    start = position + 1
    while size - start >= BATCH_SIZE_MIN:
        data = np.frombuffer(file.pread(min(window_size, size - start), start), np.uint8)
        found = int(kernel.find_sound(int(data.ctypes.data), len(data), 0))
        if found >= 0:
            yield Unreadable(position, start + found, reason, resumes=True)
            return start + found
        if start + len(data) >= size:
            break
        start += max(1, len(data) - min(_LARGEST_LOOKED_FOR, len(data) // 2))
    yield Unreadable(position, size, reason, resumes=False)
    return size


#: A batch of this size is found behind damage wherever windows meet; a larger one if it lies within a window.
_LARGEST_LOOKED_FOR: Final = 2 * 1024 * 1024


def _reason(file: File, size: int, position: int) -> str:
    head = file.pread(HEADER_SIZE_UP_TO_MAGIC, position)
    if len(head) < HEADER_SIZE_UP_TO_MAGIC:
        return f"{len(head)} bytes, which hold no header"
    if not any(head):
        return "zeros"
    try:
        needed = checked_batch_size(head, 0)
    except StratalogError as error:
        return str(error).partition(": ")[2]
    if position + needed > size:
        return f"a batch of {needed} bytes, of which {size - position} are there"
    return "a message that cannot be read"
