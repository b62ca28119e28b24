"""Bulk decode: the batches of a byte range as Arrow columns.

`decode_columns` walks headers and records in native loops (`columns_kernel`) that write the Arrow buffers directly and hold
no interpreter lock; CRC and decompression are native too. `decode_columns_plain` is its slow, clear twin: equal results and
equal errors on every input (a test holds that). Numba loads with the first decode, not with this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final

import pyarrow as pa
from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError
from stratalog.records import batch_format as fmt
from stratalog.records.batch import RecordBatch, checked_batch_size, iter_batches
from stratalog.records.columns_output import ColumnsOutput, rows_without_columns
from stratalog.records.compression import codec_of, decompress
from stratalog.records.record_format import to_int64

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
_COMPRESSION_RATIO = 4  # expected of compressed batches; buffers grow beyond it


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
    start, end = _bounds(start_offset, end_offset)
    source = pa.py_buffer(buffer)
    view = memoryview(buffer).cast("B")
    scan = _scan(kernel, source, start, end)
    output = ColumnsOutput(kernel, _schema(names), rows=scan.rows_max, data_size=scan.data_size)
    output.context[kernel.C_START_OFFSET] = start
    output.context[kernel.C_END_OFFSET] = end
    output.context[kernel.C_VERIFY_CRC] = verify_crc
    output.context[kernel.C_INCLUDE_CONTROL] = include_control
    _run(kernel, source, view, scan.table, output)
    if scan.bad_position >= 0:
        checked_batch_size(view, scan.bad_position)
        raise CorruptRecordError(f"position {scan.bad_position}: no batch header")
    return output.finish()


def _run(kernel: ModuleType, source: pa.Buffer, view: memoryview, table: Any, output: ColumnsOutput) -> None:
    """Drive the kernel over all batches: it stops for what needs Python."""
    address, size = source.address, len(table)
    table_address = int(table.ctypes.data)
    payload: pa.Buffer | None = None  # what the kernel reads from: kept until it has
    index = 0
    while True:
        index = kernel.run(output.context_address, address, table_address, index, size)
        status = output.context[kernel.C_STATUS]
        if status == kernel.DONE:
            return
        row = table[index].tolist()
        if status == kernel.FULL:
            output.reserve(
                rows_max(row[kernel.B_RECORD_COUNT], row[kernel.B_PAYLOAD_SIZE]), row[kernel.B_PAYLOAD_SIZE]
            )
        elif status == kernel.COMPRESSED:
            payload = _decompressed(
                view, row[kernel.B_POSITION], row[kernel.B_SIZE], row[kernel.B_ATTRIBUTES]
            )
            table[index, kernel.B_PAYLOAD :] = payload.address, payload.size
            table[index, kernel.B_ATTRIBUTES] &= ~fmt.CODEC_MASK
            table[index, kernel.B_CRC] = kernel.CRC_VERIFIED
        else:  # The plain twin finds the same, and has the words for it.
            batch = RecordBatch(view, row[kernel.B_POSITION])
            if status == kernel.CORRUPT:
                batch.ensure_valid()
            deque(batch.records(), maxlen=0)
            raise CorruptRecordError(f"{batch!r} changed while it was read")


def _decompressed(view: memoryview, position: int, size: int, attributes: int) -> pa.Buffer:
    try:
        records = decompress(codec_of(attributes), view[position + fmt.HEADER_SIZE : position + size])
    except CorruptRecordError:
        RecordBatch(view, position).decompressed_payload()  # says which batch
        raise
    return pa.py_buffer(records)


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
    start, end = _bounds(start_offset, end_offset)
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


@dataclass(frozen=True, slots=True)
class _Scan:
    """The batches in range, a row each; upper bounds of what they hold; where the next header cannot be one, or -1."""

    table: Any
    rows_max: int
    data_size: int
    bad_position: int


def _scan(kernel: ModuleType, source: pa.Buffer, start: int, end: int) -> _Scan:
    import numpy as np

    result = np.empty(kernel.SCAN_WORDS, np.int64)
    result_address = int(result.ctypes.data)
    kernel.scan(source.address, source.size, start, end, 0, 0, result_address)
    count = int(result[kernel.S_COUNT])
    table = np.empty((count, kernel.BATCH_WORDS), np.int64)
    kernel.scan(source.address, source.size, start, end, int(table.ctypes.data), count, result_address)
    table = table[: int(result[kernel.S_COUNT])]  # fewer, should the bytes change meanwhile
    compressed = bool((table[:, kernel.B_ATTRIBUTES] & fmt.CODEC_MASK).any())
    data_size = int(result[kernel.S_PAYLOAD_SIZE]) * (_COMPRESSION_RATIO if compressed else 1)
    return _Scan(table, int(result[kernel.S_ROWS_MAX]), data_size, int(result[kernel.S_BAD_POSITION]))


def _bounds(start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
    """The range of offsets within int64."""
    start = _INT64_MIN if start_offset is None else max(_INT64_MIN, min(start_offset, _INT64_MAX))
    end = _INT64_MAX if end_offset is None else max(_INT64_MIN, min(end_offset, _INT64_MAX))
    return start, end


def rows_max(record_count: int, payload_size: int) -> int:
    """The most records that a payload can hold, whatever its header claims."""
    return max(0, min(record_count, payload_size // fmt.RECORD_SIZE_MIN))
