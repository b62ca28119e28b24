"""The batches of a `.log`, a window at a time: headers and CRCs by native loops, as numpy rows.

What is no batch ends nothing: the scan goes on at the next batch with a right CRC behind it, if there is one. Memory is
bound by the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stratalog.errors import StratalogError
from stratalog.jobs.fsck import batch_kernel as kernel
from stratalog.log import NO_CLAIM, Claim, claim_at, next_sound, search
from stratalog.log.append import RELATIVE_OFFSET_MAX
from stratalog.records import (
    ATTRIBUTES_AT,
    BATCH_SIZE_MIN,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    RecordBatch,
    batch_at,
    checked_batch_size,
)
from stratalog.util import File, crc32c

WINDOW_SIZE: Final = 8 * 1024 * 1024
_ROWS_MAX: Final = 16_384


@dataclass(frozen=True, slots=True)
class Window:
    """Batches that lie one behind the other: `rows` (see `batch_kernel`), with positions in the file; and their bytes,
    of a batch that is larger than a window its header only.
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


def scan_batches(
    file: File, size: int, window_size: int = WINDOW_SIZE, *, base_offset: int = 0
) -> Iterator[Window | Unreadable]:
    """Everything in the first `size` bytes of the `.log` of `base_offset`, in order."""
    position, expected_offset = 0, base_offset
    highest = base_offset + RELATIVE_OFFSET_MAX
    before = NO_CLAIM
    while position < size:
        data = memoryview(file.pread(min(window_size, size - position), position))
        rows, end, status = _scan(data)
        if len(rows):
            rows[:, kernel.R_POSITION] += position
            expected_offset = _behind(rows, expected_offset, highest)
            before = _claim_of(rows[-1], expected_offset, highest)
            yield Window(rows, data, position)
            position += end
        elif (window := _single(file, size, position, status, window_size)) is not None:
            expected_offset = _behind(window.rows, expected_offset, highest)
            yield window
            position += int(window.rows[0, kernel.R_SIZE])
        else:
            damage = _pass_over(file, size, position, window_size, expected_offset, highest, before)
            yield damage
            position = damage.end


def _claim_of(row: Any, expected_offset: int, highest: int) -> Claim:
    """What the last batch says, if its CRC is wrong and something else than a batch follows: its length is wrong
    then."""
    first, last = int(row[kernel.R_BASE_OFFSET]), int(row[kernel.R_LAST_OFFSET])
    is_known = not row[kernel.R_IS_SOUND] and expected_offset <= first <= last <= highest
    return Claim(0, last) if is_known else NO_CLAIM


def _behind(rows: Any, expected_offset: int, highest: int) -> int:
    """The offset behind the last sound batch of the segment up to the end of `rows`."""
    last = rows[rows[:, kernel.R_IS_SOUND] == 1, kernel.R_LAST_OFFSET]
    last = last[last <= highest]
    return max(expected_offset, int(last.max()) + 1) if len(last) else expected_offset


def _scan(data: memoryview) -> tuple[Any, int, int]:
    """Rows of the batches at the start of a window, where they end, and why."""
    source = np.frombuffer(data, np.uint8)
    rows = np.empty((_ROWS_MAX, kernel.ROW_WORDS), np.int64)
    result = np.zeros(kernel.RESULT_WORDS, np.int64)
    kernel.scan(int(source.ctypes.data), len(source), int(rows.ctypes.data), _ROWS_MAX, int(result.ctypes.data))
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
        position,
        batch.base_offset,
        batch.last_offset,
        needed,
        batch.partition_leader_epoch,
        batch.attributes,
        batch.max_timestamp,
        batch.producer_id,
        batch.record_count,
        crc == batch.crc,
        batch.magic,
    )
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
        position,
        base_offset,
        batch.last_offset,
        needed,
        -1,
        batch.attributes,
        batch.max_timestamp,
        -1,
        1,
        is_sound,
        batch.magic,
    )
    return Window(np.array([row], np.int64), data, position)


def _pass_over(
    file: File, size: int, position: int, window_size: int, expected_offset: int, highest: int, before: Claim
) -> Unreadable:
    """What is no batch, up to where batches go on (`log.resumption`): that is looked for in all that is left."""
    reason = _reason(file, size, position)
    start, claim = position, NO_CLAIM
    while size - start >= BATCH_SIZE_MIN:
        data = memoryview(file.pread(min(window_size, size - start), start))
        if start == position and (claim := claim_at(data, 0, expected_offset, highest)) != NO_CLAIM:
            at, found = next_sound(data, 0, expected_offset, highest)
        else:
            claim = before if claim == NO_CLAIM else claim
            at, found = search(data, int(start == position), expected_offset, highest, claim)
        if found >= 0:
            return Unreadable(position, start + at, reason, resumes=True)
        if start + len(data) >= size:
            break
        step = max(1, len(data) - min(_LARGEST_LOOKED_FOR, len(data) // 2))
        start += step
        claim = claim._replace(end=max(claim.end - step, 0))
    return Unreadable(position, size, reason, resumes=False)


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
        return error.reason
    if position + needed > size:
        return f"a batch of {needed} bytes, of which {size - position} are there"
    return "a message that cannot be read"
