"""Bulk decode: the batches of a byte range as Arrow columns.

`decode_columns` walks headers and records in native loops (`columns_kernel`) that write the Arrow buffers directly and hold
no interpreter lock; CRC and decompression are native too. `decode_columns_plain` is its slow, clear twin: equal results and
equal errors on every input (a test holds that). Numba loads with the first decode, not with this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Final

import pyarrow as pa
from typing_extensions import Buffer

from stratalog.records import batch_format as fmt
from stratalog.records.batch import RecordBatch, checked_batch_size, iter_batches
from stratalog.records.columns_output import ColumnsOutput, rows_without_columns
from stratalog.records.record_format import to_int64
from stratalog.util.crc32c import crc32c

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

COLUMN_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(HEADER_TYPE)),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
        pa.field("sequence", pa.int32()),
        pa.field("leader_epoch", pa.int32()),
    ]
)
"""All columns, in this order. `timestamp` is milliseconds since the epoch. `headers` is null for a record without
headers, as in Spark's Kafka source; a header key that is not UTF-8 has U+FFFD where it is not. `sequence` and the
producer fields are -1 where there are none.
"""

COLUMN_NAMES: Final = tuple(COLUMN_SCHEMA.names)

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1
# Bytes whose CRC is computed before they are decoded: they are still in the cache then.
_GROUP_SIZE = 256 * 1024


def decode_columns(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Collection[str] | None = None,
    verify_crc: bool = True,
    include_control: bool = False,
) -> pa.RecordBatch:
    """The records in `buffer` with offsets in [start_offset, end_offset), in order, as columns of `COLUMN_SCHEMA`.

    `buffer` holds whole batches in the order of a log; an incomplete one at the end is left out. Batches entirely
    outside the range are passed over by their headers alone, and nothing after the first batch at or after
    `end_offset` is looked at. `columns` names the wanted columns (all by default, always in schema order); what is
    not wanted is not copied. Control batches are left out unless `include_control`. The result owns its memory.

    Raises CorruptRecordError (a header that cannot be one, CRC, decompression), UnsupportedForMessageFormatError (formats
    0 and 1), UnsupportedCompressionTypeError, InvalidRecordError (malformed records), RecordListTooLargeError (a column
    would pass 2 GiB: pass fewer bytes), ValueError (an unknown column name). Thread-safe, and parallel: the native parts do
    not hold the interpreter lock.
    """
    names = _wanted(columns)
    kernel = _kernel()
    start = _INT64_MIN if start_offset is None else start_offset
    end = _INT64_MAX if end_offset is None else end_offset
    source = pa.py_buffer(buffer)
    view = memoryview(buffer).cast("B")
    table, rows, payload_size = _scan(kernel, source, view, start, end)
    output = ColumnsOutput(kernel, _schema(names), start, end, rows, payload_size)
    run = _Run(kernel, table, output, view)
    for index, (position, size, crc, attributes, count) in enumerate(table[:, :5].tolist()):
        if verify_crc and crc32c(view[position + fmt.ATTRIBUTES_AT : position + size]) != crc:
            RecordBatch(view, position).ensure_valid()
        if attributes & fmt.CONTROL_BIT and not include_control:
            run.skip(index)
        elif attributes & fmt.CODEC_MASK:
            run.add_compressed(index, count, position)
        else:
            run.add(index, count, size - fmt.HEADER_SIZE)
    run.flush(len(table))
    return output.finish()


def decode_columns_plain(
    buffer: Buffer,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Collection[str] | None = None,
    verify_crc: bool = True,
    include_control: bool = False,
) -> pa.RecordBatch:
    """What `decode_columns` is, record by record in plain Python: its oracle."""
    names = _wanted(columns)
    start = _INT64_MIN if start_offset is None else start_offset
    end = _INT64_MAX if end_offset is None else end_offset
    rows: list[dict[str, object]] = []
    for batch in _batches_in_range(memoryview(buffer).cast("B"), start, end):
        if verify_crc:
            batch.ensure_valid()
        if batch.is_control and not include_control:
            continue
        rows += [
            {
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "timestamp_type": batch.timestamp_type,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
                "producer_id": batch.producer_id,
                "producer_epoch": batch.producer_epoch,
                "sequence": record.sequence,
                "leader_epoch": batch.partition_leader_epoch,
            }
            for record in batch.records()
            if start <= record.offset < end
        ]
    return (
        pa.RecordBatch.from_pylist(rows, schema=_schema(names)) if names else rows_without_columns(len(rows))
    )


def warm() -> None:
    """Compile the native loops, or read them from the cache, so that no later call waits for it."""
    from stratalog.records.batch_builder import build_batch
    from stratalog.records.record import Record

    decode_columns(build_batch([Record(0, 0, b"key", b"value", (("header", b"value"),))]))


@cache
def _kernel() -> ModuleType:
    from stratalog.records import columns_kernel

    return columns_kernel


def _wanted(columns: Collection[str] | None) -> tuple[str, ...]:
    if columns is None:
        return COLUMN_NAMES
    unknown = sorted(set(columns) - set(COLUMN_NAMES))
    if unknown:
        raise ValueError(f"unknown columns {', '.join(unknown)}; there are {', '.join(COLUMN_NAMES)}")
    return tuple(name for name in COLUMN_NAMES if name in columns)


def _schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([COLUMN_SCHEMA.field(name) for name in names])


def _batches_in_range(view: memoryview, start: int, end: int) -> Iterator[RecordBatch]:
    for batch in iter_batches(view):
        if batch.base_offset >= end:
            return
        if to_int64(batch.last_offset) >= start:
            yield batch


def _scan(
    kernel: ModuleType, source: pa.Buffer, view: memoryview, start: int, end: int
) -> tuple[Any, int, int]:
    """The table of batches, and upper bounds of the records and of their bytes before decompression."""
    import numpy as np

    result = np.empty(kernel.SCAN_WORDS, np.int64)
    kernel.scan(source.address, source.size, start, end, 0, 0, result.ctypes.data)
    bad_position = int(result[kernel.S_BAD_POSITION])
    if bad_position >= 0:
        checked_batch_size(view, bad_position)
        raise AssertionError(f"position {bad_position}: refused by the scan, but a valid header")
    count = int(result[kernel.S_COUNT])
    table = np.empty((count, kernel.BATCH_WORDS), np.int64)
    kernel.scan(source.address, source.size, start, end, table.ctypes.data, count, result.ctypes.data)
    return table, int(result[kernel.S_ROWS_MAX]), int(result[kernel.S_PAYLOAD_SIZE])


class _Run:
    """Hands batches to the kernel, in order and as many at once as can be."""

    def __init__(self, kernel: ModuleType, table: Any, output: ColumnsOutput, view: memoryview) -> None:
        self._kernel = kernel
        self._table = table
        self._address = int(table.ctypes.data)
        self._output = output
        self._view = view
        self._first = 0
        self._rows = 0
        self._size = 0

    def add(self, index: int, record_count: int, payload_size: int) -> None:
        """An uncompressed batch, decoded together with its neighbours."""
        self._rows += rows_max(record_count, payload_size)
        self._size += payload_size
        if self._size >= _GROUP_SIZE:
            self.flush(index + 1)

    def add_compressed(self, index: int, record_count: int, position: int) -> None:
        """A compressed batch, decoded at once."""
        self.flush(index)
        payload = pa.py_buffer(RecordBatch(self._view, position).decompressed_payload())
        self._table[index, self._kernel.B_PAYLOAD] = payload.address
        self._table[index, self._kernel.B_PAYLOAD_SIZE] = payload.size
        self._rows = rows_max(record_count, payload.size)
        self._size = payload.size
        self.flush(index + 1)

    def skip(self, index: int) -> None:
        """A batch that is not wanted."""
        self.flush(index)
        self._first = index + 1

    def flush(self, end: int) -> None:
        """Decode what was added, up to the batch `end`."""
        first, rows, size = self._first, self._rows, self._size
        self._first, self._rows, self._size = end, 0, 0
        if first >= end:
            return
        self._output.reserve(rows, size)
        bad = self._kernel.decode(self._output.context_address, self._address, first, end)
        if bad >= 0:
            batch = RecordBatch(self._view, int(self._table[bad, self._kernel.B_POSITION]))
            deque(batch.records(), maxlen=0)
            raise AssertionError(f"{batch!r}: refused by the native loop, but its records are well formed")


def rows_max(record_count: int, payload_size: int) -> int:
    """The most records that a payload can hold, whatever its header claims."""
    return max(0, min(record_count, payload_size // fmt.RECORD_SIZE_MIN))
