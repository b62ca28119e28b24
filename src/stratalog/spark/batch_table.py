"""The batches of a block of bytes as a table of what their headers say: one native pass, then numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from stratalog.records import batch_format as fmt
from stratalog.records import columns_kernel as kernel
from stratalog.spark.intervals import INT64_MAX, INT64_MIN

_LAST_OFFSET_DELTA: Final = np.arange(fmt.LAST_OFFSET_DELTA_AT, fmt.LAST_OFFSET_DELTA_AT + 4)


@dataclass(frozen=True, slots=True)
class BatchTable:
    """The whole batches from the beginning of a block, one element of each array for each batch.

    `end` is where they end in the block. `bad` is set when that is not because the block ends: the header there cannot be
    that of a batch.
    """

    positions: Any
    sizes: Any
    attributes: Any
    base_offsets: Any
    last_offsets: Any
    max_timestamps_ms: Any
    producer_ids: Any
    end: int
    bad: bool

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def scan(cls, block: Buffer) -> BatchTable:
        source = pa.py_buffer(block)
        result = np.empty(kernel.SCAN_WORDS, np.int64)
        kernel.scan(source.address, source.size, INT64_MIN, INT64_MAX, 0, 0, result.ctypes.data)
        count = int(result[kernel.S_COUNT])
        table = np.empty((count, kernel.BATCH_WORDS), np.int64)
        kernel.scan(
            source.address, source.size, INT64_MIN, INT64_MAX, table.ctypes.data, count, result.ctypes.data
        )
        positions, sizes = table[:, kernel.B_POSITION], table[:, kernel.B_SIZE]
        base_offsets = table[:, kernel.B_BASE_OFFSET]
        octets = np.frombuffer(source, np.uint8)
        deltas = octets[positions[:, None] + _LAST_OFFSET_DELTA].view(">i4")[:, 0]
        return cls(
            positions=positions,
            sizes=sizes,
            attributes=table[:, kernel.B_ATTRIBUTES],
            base_offsets=base_offsets,
            last_offsets=base_offsets + deltas,
            max_timestamps_ms=table[:, kernel.B_MAX_TIMESTAMP],
            producer_ids=table[:, kernel.B_PRODUCER_ID],
            end=int(positions[-1] + sizes[-1]) if count else 0,
            bad=bool(result[kernel.S_BAD_POSITION] >= 0),
        )
