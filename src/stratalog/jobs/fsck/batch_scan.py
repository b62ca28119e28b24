"""Scan the batches of a `.log`, a window at a time: native loops turn headers and CRCs into numpy rows.

Bytes that are not a batch do not end the scan: it continues at the next batch with a valid CRC, if any. Memory is
bounded by the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from stratalog.errors import StratalogError
from stratalog.log import NO_CLAIM, Claim, claim_at, next_sound, search
from stratalog.log.append import RELATIVE_OFFSET_MAX
from stratalog.log.segment import LogBytes
from stratalog.records import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    RecordBatch,
    batch_at,
    checked_batch_size,
)
from stratalog.records.native import header_scan
from stratalog.util import File, crc32c

WINDOW_SIZE: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive batches: `rows` (`records.native.header_scan`) with positions in the file, and their bytes.

    A batch larger than a window has only its header here.
    """

    rows: Any
    data: memoryview
    #: Position in the file of the first byte of `data`.
    position: int

    def batch(self, row: Any) -> RecordBatch:
        return batch_at(self.data, int(row["position"]) - self.position)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes [position, end) that are not a batch. `resumes`: a sound batch begins at `end`."""

    position: int
    end: int
    reason: str
    resumes: bool


def scan_batches(
    file: File, size: int, window_size: int = WINDOW_SIZE, *, base_offset: int = 0
) -> Iterator[Window | Unreadable]:
    """Yield everything in the first `size` bytes of the `.log` of `base_offset`, in order."""
    position, expected_offset = 0, base_offset
    highest = base_offset + RELATIVE_OFFSET_MAX
    before = NO_CLAIM
    while position < size:
        data = memoryview(file.pread(min(window_size, size - position), position))
        rows, end, status = header_scan.scan_window(data, position=position, with_crc=True)
        if len(rows):
            expected_offset = _behind(rows, expected_offset, highest)
            before = _claim_of(rows[-1], expected_offset, highest)
            yield Window(rows, data, position)
            position = end
        elif (window := _single(file, size, position, status, window_size)) is not None:
            expected_offset = _behind(window.rows, expected_offset, highest)
            yield window
            position += int(window.rows["size"][0])
        else:
            damage = _pass_over(file, size, position, expected_offset, highest, before)
            yield damage
            position = damage.end


def _claim_of(row: Any, expected_offset: int, highest: int) -> Claim:
    """Return the claim of the last batch if its CRC is wrong and no batch follows: its length is wrong then."""
    first, last = int(row["base_offset"]), int(row["last_offset"])
    is_known = not row["is_sound"] and expected_offset <= first <= last <= highest
    return Claim(0, last) if is_known else NO_CLAIM


def _behind(rows: Any, expected_offset: int, highest: int) -> int:
    """Return the offset after the last sound batch of the segment up to the end of `rows`."""
    last = rows["last_offset"][rows["is_sound"] == 1]
    last = last[last <= highest]
    return max(expected_offset, int(last.max()) + 1) if len(last) else expected_offset


def _single(file: File, size: int, position: int, status: int, window_size: int) -> Window | None:
    """Return the batch at `position` that the native loop skipped, or None."""
    if status == header_scan.CUT:
        return _large_batch(file, size, position, window_size)
    return _old_message(file, size, position) if status == header_scan.OLD_FORMAT else None


def _large_batch(file: File, size: int, position: int, window_size: int) -> Window | None:
    """Return a batch larger than a window, with its header only, or None if there is none or it is incomplete."""
    data = memoryview(file.pread(HEADER_SIZE, position))
    if len(data) < HEADER_SIZE or position + (needed := checked_batch_size(data, 0)) > size:
        return None
    batch = RecordBatch(data)
    crc = crc32c(data[ATTRIBUTES_AT:])
    for start in range(position + HEADER_SIZE, position + needed, window_size):
        crc = crc32c(file.pread(min(window_size, position + needed - start), start), crc)
    rows = header_scan.row_of(batch, position)
    rows["is_sound"] = crc == batch.crc
    return Window(rows, data, position)


def _old_message(file: File, size: int, position: int) -> Window | None:
    """Return a message of format 0 or 1 as a row, or None if it is incomplete or its offsets cannot be read."""
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
    rows = header_scan.row_of(batch, position)
    rows["base_offset"], rows["record_count"], rows["is_sound"] = base_offset, 1, is_sound
    return Window(rows, data, position)


def _pass_over(file: File, size: int, position: int, expected_offset: int, highest: int, before: Claim) -> Unreadable:
    """Return the bytes that are not a batch. Searches the rest of the file for the next batch (`log.resumption`)."""
    log = LogBytes(file, size)
    if claim_at(log, position, expected_offset, highest) != NO_CLAIM:
        end, found = next_sound(log, position, expected_offset, highest)
    else:
        end, found = search(log, position + 1, expected_offset, highest, before)
    return Unreadable(position, end, _reason(file, size, position), resumes=found >= 0)


def _reason(file: File, size: int, position: int) -> str:
    head = file.pread(HEADER_SIZE_UP_TO_MAGIC, position)
    if len(head) < HEADER_SIZE_UP_TO_MAGIC:
        return f"{len(head)} bytes, too few for a header"
    if not any(head):
        return "zeros"
    try:
        needed = checked_batch_size(head, 0)
    except StratalogError as error:
        return error.reason
    if position + needed > size:
        return f"a batch of {needed} bytes, but only {size - position} exist"
    return "a message that cannot be read"
