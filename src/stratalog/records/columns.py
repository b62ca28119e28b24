"""Bulk decode: the batches of a byte range as Arrow columns.

`decode_columns` walks headers and records in native loops (`native.columns`) that write the Arrow buffers directly and
hold no interpreter lock; CRC and decompression are native too. `decode_columns_plain` is its slow, clear twin: equal
results and equal errors on every input (a test holds that). Numba loads with the first decode, not with this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import pyarrow as pa
from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError, RecordListTooLargeError
from stratalog.records import batch_format as fmt, native
from stratalog.records.batch import RecordBatch, batch_at, checked_batch_size, iter_batches
from stratalog.records.columns_output import ColumnsOutput, rows_without_columns
from stratalog.records.compression import Codec, codec_of, decompress
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
    """Return the records in `buffer` with offsets in [start_offset, end_offset), in order.

    They are columns of `COLUMN_SCHEMA`.

    `buffer` holds whole batches in the order of a log; an incomplete one at the end is left out. Batches entirely
    outside the range are passed over by their headers alone, and nothing after the first batch at or after
    `end_offset` is looked at. `columns` names the wanted columns (all by default, always in schema order); what is
    not wanted is not copied. Control batches are left out unless `include_control`. The result owns its memory.

    Messages of formats 0 and 1 are read too, record by record in Python: there is no native loop for them. A wrapper of
    theirs is looked at if its last offset is in the range or after it.

    Raises CorruptRecordError (a header that cannot be one, CRC, decompression), UnsupportedCompressionTypeError,
    InvalidRecordError (malformed records), RecordListTooLargeError (a column would pass 2 GiB: pass fewer bytes),
    ValueError (an unknown column name). Thread-safe, and parallel: the native parts do not hold the interpreter lock.
    """
    names = _wanted(columns)
    wanted = _Wanted(_schema(names), *_bounds(start_offset, end_offset), verify_crc, include_control)
    source = pa.py_buffer(buffer)
    view = memoryview(buffer).cast("B")
    parts: list[pa.RecordBatch] = []
    position = 0
    while position >= 0:
        part, position = _decode_native(source, view, position, wanted)
        parts.append(part)
        if position >= 0:
            part, position = _decode_old(view, position, wanted)
            parts.append(part)
    return parts[0] if len(parts) == 1 else _joined(parts)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Arguments of `decode_columns`, with offsets within int64."""

    schema: pa.Schema
    start: int
    end: int
    verify_crc: bool
    include_control: bool


def _decode_native(source: pa.Buffer, view: memoryview, start: int, wanted: _Wanted) -> tuple[pa.RecordBatch, int]:
    """Decode the records of format 2 from position `start` on. Also return where an older format ends that, or -1."""
    headers = native.header_scan
    found = headers.scan_window(view, start, start_offset=wanted.start, end_offset=wanted.end)
    part = _decode_rows(source, view, found.rows, wanted)
    if found.status not in (headers.NO_BATCH, headers.OLD_FORMAT):
        return part, -1
    is_whole = found.end + checked_batch_size(view, found.end) <= len(view)
    return part, found.end if is_whole else -1


def decode_rows(
    buffer: Buffer, rows: Any, *, start_offset: int, end_offset: int, columns: Collection[str]
) -> pa.RecordBatch:
    """Decode as `decode_columns` the batches of format 2 found in this buffer: `rows` of `native.header_scan`.

    Their headers are not looked at again. The rows stay as they are.
    """
    wanted = _Wanted(_schema(_wanted(columns)), *_bounds(start_offset, end_offset), True, False)
    rows = rows[(rows["last_offset"] >= wanted.start) & (rows["base_offset"] < wanted.end)]
    return _decode_rows(pa.py_buffer(buffer), memoryview(buffer).cast("B"), rows, wanted)


def _decode_old(view: memoryview, position: int, wanted: _Wanted) -> tuple[pa.RecordBatch, int]:
    """Decode the messages of formats 0 and 1 from `position` on. Also return their end, or -1 if no more is needed."""
    run: list[RecordBatch] = []
    end = position
    while len(view) - end >= fmt.HEADER_SIZE_UP_TO_MAGIC and view[end + fmt.MAGIC_AT] < fmt.MAGIC:
        try:
            size = checked_batch_size(view, end)
        except CorruptRecordError:  # for the next round to say, after what is wrong with these
            break
        if end + size > len(view):
            break
        run.append(batch_at(view, end))
        end += size
    is_behind = any(batch.last_offset >= wanted.end for batch in run)
    return _plain(run, wanted), -1 if is_behind else end


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several results one after the other."""
    if not parts[0].schema.names:
        return rows_without_columns(sum(part.num_rows for part in parts))
    whole = pa.Table.from_batches(parts).combine_chunks().to_batches()
    if len(whole) > 1:
        raise RecordListTooLargeError("a column would pass 2 GiB; decode fewer bytes at once")
    return whole[0] if whole else parts[0]


def _decode_rows(source: pa.Buffer, view: memoryview, rows: Any, wanted: _Wanted) -> pa.RecordBatch:
    """Return the records of the batches that the rows say where they are; the rows are changed on the way."""
    kernel = native.columns
    sizes = rows["payload_size"]
    rows_expected = int(rows["record_count"].clip(0, sizes // fmt.RECORD_SIZE_MIN).sum())
    is_compressed = bool((rows["attributes"] & fmt.CODEC_MASK).any())
    data_size = int(sizes.sum()) * (_COMPRESSION_RATIO if is_compressed else 1)
    output = ColumnsOutput(kernel, wanted.schema, rows=rows_expected, data_size=data_size)
    context = output.context
    context.start_offset, context.end_offset = wanted.start, wanted.end
    context.verify_crc, context.include_control = wanted.verify_crc, wanted.include_control
    _run(kernel, source, view, rows, output)
    return output.finish()


def _run(kernel: ModuleType, source: pa.Buffer, view: memoryview, table: Any, output: ColumnsOutput) -> None:
    """Drive the kernel over all batches: it stops for what needs Python."""
    context, address, size = output.context, source.address, len(table)
    table_address = int(table.ctypes.data)
    payload: pa.Buffer | None = None  # what the kernel reads from: kept until it has
    index = 0
    while True:
        index = kernel.run(context.address, address, table_address, index, size)
        status = context.status
        if status == kernel.DONE:
            return
        row = table[index]
        position, payload_size = int(row["position"]), int(row["payload_size"])
        if status == kernel.FULL:
            output.reserve(rows_max(int(row["record_count"]), payload_size), payload_size)
        elif status == kernel.COMPRESSED:
            payload = _decompressed(view, position, int(row["size"]), int(row["attributes"]))
            row["payload"], row["payload_size"] = payload.address, payload.size
            row["attributes"] &= ~fmt.CODEC_MASK
        else:  # The plain twin finds the same, and has the words for it.
            batch = RecordBatch(view, position)
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
    """Return what `decode_columns` is, record by record in plain Python: its oracle."""
    names = _wanted(columns)
    wanted = _Wanted(_schema(names), *_bounds(start_offset, end_offset), verify_crc, include_control)
    return _plain(iter_batches(memoryview(buffer).cast("B")), wanted)


def _plain(batches: Iterable[RecordBatch], wanted: _Wanted) -> pa.RecordBatch:
    rows: list[dict[str, object]] = []
    for batch in _in_range(batches, wanted.start, wanted.end):
        if wanted.verify_crc:
            batch.ensure_valid()
        if batch.is_control and not wanted.include_control:
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
            if wanted.start <= record.offset < wanted.end
        ]
    if not wanted.schema.names:
        return rows_without_columns(len(rows))
    return pa.RecordBatch.from_pylist(rows, schema=wanted.schema)


def _wanted(columns: Collection[str] | None) -> tuple[str, ...]:
    if columns is None:
        return COLUMN_NAMES
    unknown = sorted(set(columns) - set(COLUMN_NAMES))
    if unknown:
        raise ValueError(f"unknown columns {', '.join(unknown)}; there are {', '.join(COLUMN_NAMES)}")
    return tuple(name for name in COLUMN_NAMES if name in columns)


def _schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([COLUMN_SCHEMA.field(name) for name in names])


def _in_range(batches: Iterable[RecordBatch], start: int, end: int) -> Iterator[RecordBatch]:
    for batch in batches:
        if batch.magic != fmt.MAGIC:  # of a wrapper the base offset is inside, compressed
            is_behind = batch.last_offset >= end
            if batch.last_offset >= start and not (is_behind and batch.codec is Codec.NONE):
                yield batch
            if is_behind:
                return
        elif batch.base_offset >= end:
            return
        elif to_int64(batch.last_offset) >= start:
            yield batch


def _bounds(start_offset: int | None, end_offset: int | None) -> tuple[int, int]:
    """Return the range of offsets within int64."""
    start = _INT64_MIN if start_offset is None else max(_INT64_MIN, min(start_offset, _INT64_MAX))
    end = _INT64_MAX if end_offset is None else max(_INT64_MIN, min(end_offset, _INT64_MAX))
    return start, end


def rows_max(record_count: int, payload_size: int) -> int:
    """Return the most records that a payload can hold, whatever its header claims."""
    return max(0, min(record_count, payload_size // fmt.RECORD_SIZE_MIN))
