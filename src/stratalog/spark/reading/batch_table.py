"""The batch headers of a block of bytes as a table: one native pass, then numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError, KafkaError
from stratalog.records import HEADER_SIZE_UP_TO_MAGIC, MAGIC, MAGIC_AT, RecordBatch, batch_at, checked_batch_size
from stratalog.records.native import header_scan

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class BatchTable:
    """The whole batches from the beginning of a block: `rows` of `records.native.header_scan`.

    They end at `end`; if `bad`, the header there cannot be that of a batch. Messages of formats 0 and 1 have rows too,
    with UNKNOWN for their `record_count`.
    """

    rows: Any
    end: int
    bad: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, field: str) -> Any:
        return self.rows[field]

    @classmethod
    def scan(cls, block: Buffer) -> BatchTable:
        view = memoryview(block).cast("B")
        parts: list[Any] = []
        end, bad = 0, False
        while True:
            rows, end, status = header_scan.scan_window(view, end)
            parts.append(rows)
            bad = status != header_scan.CUT
            if not bad:
                break
            rows, end = _scan_old(view, end)
            if not len(rows):
                bad = not _is_beginning(view, end)
                break
            parts.append(rows)
        return cls(parts[0] if len(parts) == 1 else np.concatenate(parts), end, bad)


def _scan_old(view: memoryview, start: int) -> tuple[Any, int]:
    """Return the whole messages of formats 0 and 1 from `start` on, and where they end."""
    parts: list[Any] = []
    end = start
    while len(view) - end >= HEADER_SIZE_UP_TO_MAGIC and view[end + MAGIC_AT] < MAGIC:
        try:
            size = checked_batch_size(view, end)
        except CorruptRecordError:  # the caller says so
            break
        if size > len(view) - end:
            break
        batch = batch_at(view, end)
        row = header_scan.row_of(batch, end)
        row["base_offset"], row["record_count"] = _base_offset(batch), UNKNOWN
        parts.append(row)
        end += size
    return np.concatenate(parts) if parts else np.empty(0, header_scan.batch_dtype()), end


def _base_offset(batch: RecordBatch) -> int:
    """Return the base offset, or the last offset of a wrapper that cannot be read, which decoding will report."""
    try:
        return batch.base_offset
    except KafkaError:
        return batch.last_offset


def _is_beginning(view: memoryview, position: int) -> bool:
    """Return whether a batch begins at `position` and is cut off."""
    try:
        return checked_batch_size(view, position) > len(view) - position
    except CorruptRecordError:
        return False
