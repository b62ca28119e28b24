"""The batches of a block of bytes as a table of what their headers say: one native pass, then numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError, KafkaError
from stratalog.records import RecordBatch, batch_at, checked_batch_size
from stratalog.records import batch_format as fmt
from stratalog.records.native import columns as kernel
from stratalog.spark.planning import INT64_MAX, INT64_MIN

UNKNOWN: Final = -1

#: Arrays of a `BatchTable`.
_COLUMNS: Final = 8
_LAST_OFFSET_DELTA: Final = np.arange(fmt.LAST_OFFSET_DELTA_AT, fmt.LAST_OFFSET_DELTA_AT + 4)


@dataclass(frozen=True, slots=True)
class BatchTable:
    """The whole batches from the beginning of a block, one element of each array for each batch.

    `end` is where they end in the block. `bad` is set when that is not because the block ends: the header there cannot
    be that of a batch. Messages of formats 0 and 1 have a row like batches, with UNKNOWN for their `records`.
    """

    positions: Any
    sizes: Any
    attributes: Any
    base_offsets: Any
    last_offsets: Any
    max_timestamps_ms: Any
    producer_ids: Any
    records: Any
    end: int
    bad: bool

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def scan(cls, block: Buffer) -> BatchTable:
        source = pa.py_buffer(block)
        view = memoryview(source).cast("B")
        parts: list[Any] = []
        end, bad = 0, False
        while True:
            rows, end, bad = _scan_native(source, end)
            parts.append(rows)
            if not bad:
                break
            rows, end = _scan_old(view, end)
            if not len(rows):
                bad = not _is_beginning(view, end)
                break
            parts.append(rows)
        table = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return cls(
            positions=table[:, 0],
            sizes=table[:, 1],
            attributes=table[:, 2],
            base_offsets=table[:, 3],
            last_offsets=table[:, 4],
            max_timestamps_ms=table[:, 5],
            producer_ids=table[:, 6],
            records=table[:, 7],
            end=end,
            bad=bad,
        )


def _scan_native(source: pa.Buffer, start: int) -> tuple[Any, int, bool]:
    """The batches of format 2 from position `start` on, where they end, and whether something else stands there."""
    address, size = source.address + start, source.size - start
    result = np.empty(kernel.SCAN_WORDS, np.int64)
    kernel.scan(address, size, INT64_MIN, INT64_MAX, 0, 0, result.ctypes.data)
    count = int(result[kernel.S_COUNT])
    found = np.empty((count, kernel.BATCH_WORDS), np.int64)
    kernel.scan(address, size, INT64_MIN, INT64_MAX, found.ctypes.data, count, result.ctypes.data)
    positions = found[:, kernel.B_POSITION] + start
    octets = np.frombuffer(source, np.uint8)
    deltas = octets[positions[:, None] + _LAST_OFFSET_DELTA].view(">i4")[:, 0]
    rows = np.empty((count, _COLUMNS), np.int64)
    rows[:, 0] = positions
    rows[:, 1] = found[:, kernel.B_SIZE]
    rows[:, 2] = found[:, kernel.B_ATTRIBUTES]
    rows[:, 3] = found[:, kernel.B_BASE_OFFSET]
    rows[:, 4] = found[:, kernel.B_BASE_OFFSET] + deltas
    rows[:, 5] = found[:, kernel.B_MAX_TIMESTAMP]
    rows[:, 6] = found[:, kernel.B_PRODUCER_ID]
    rows[:, 7] = found[:, kernel.B_RECORD_COUNT]
    end = int(rows[-1, 0] + rows[-1, 1]) if count else start
    return rows, end, bool(result[kernel.S_BAD_POSITION] >= 0)


def _scan_old(view: memoryview, start: int) -> tuple[Any, int]:
    """The whole messages of formats 0 and 1 from `start` on, and where they end."""
    rows: list[tuple[int, ...]] = []
    end = start
    while len(view) - end >= fmt.HEADER_SIZE_UP_TO_MAGIC and view[end + fmt.MAGIC_AT] < fmt.MAGIC:
        try:
            size = checked_batch_size(view, end)
        except CorruptRecordError:  # the caller says so
            break
        if size > len(view) - end:
            break
        batch = batch_at(view, end)
        offsets = _base_offset(batch), batch.last_offset
        rows.append((end, size, batch.attributes, *offsets, batch.max_timestamp, -1, UNKNOWN))
        end += size
    return np.array(rows, np.int64).reshape(-1, _COLUMNS), end


def _base_offset(batch: RecordBatch) -> int:
    """Of a wrapper that cannot be read, its last offset: whoever decodes it will say what is wrong."""
    try:
        return batch.base_offset
    except KafkaError:
        return batch.last_offset


def _is_beginning(view: memoryview, position: int) -> bool:
    """Whether a batch begins at `position` of which the end is missing."""
    try:
        return checked_batch_size(view, position) > len(view) - position
    except CorruptRecordError:
        return False
