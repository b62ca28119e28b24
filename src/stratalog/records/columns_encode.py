"""Bulk encode: Arrow columns as record batches, the counterpart of `columns`.

The bytes are those of `build_batch` (and Kafka's `MemoryRecordsBuilder`) for the same batches. Records, CRC and
compression are native and hold no interpreter lock; Python sees each batch once. Numba loads with the first encode, not
with this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import Buffer

from stratalog.errors import InvalidRecordError, InvalidTimestampError, RecordListTooLargeError
from stratalog.records import batch_format as fmt, native
from stratalog.records.columns import HEADER_TYPE
from stratalog.records.compression import Codec, compress
from stratalog.util import crc32c

BATCH_BYTES: Final = 128 * 1024
"""Default bound of a batch: large enough to compress well and to cost little each, small enough to fetch one."""

_OUTPUT_BYTES: Final = 4 << 20
_TABLE_ROWS: Final = 4096
#: Of the table of batches, in the order of `_Encoding._batch`.
_WANTED: Final = ["position", "size", "base_offset", "last_offset", "max_timestamp", "record_count", "base_sequence"]


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings for new batches.

    A batch takes records while it stays within `batch_bytes` before compression (its header counts) and within
    `batch_records`; a larger record is a batch alone. `base_sequence` is that of the first batch.
    """

    codec: Codec = Codec.NONE
    level: int | None = None
    batch_bytes: int = BATCH_BYTES
    batch_records: int = fmt.SEQUENCE_MAX
    producer_id: int = fmt.NO_PRODUCER_ID
    producer_epoch: int = fmt.NO_PRODUCER_EPOCH
    base_sequence: int = fmt.NO_SEQUENCE
    partition_leader_epoch: int = fmt.NO_PARTITION_LEADER_EPOCH
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One batch, and what its header says."""

    data: Buffer
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    records: int
    #: -1 without a producer id.
    base_sequence: int
    leader_epoch: int

    @property
    def size(self) -> int:
        """Bytes."""
        return memoryview(self.data).nbytes


def encode_batches(
    columns: pa.RecordBatch, first_offset: int = 0, settings: BatchSettings | None = None
) -> Iterator[EncodedBatch]:
    """Return the rows of `columns` as batches, in order.

    Columns are `key` and `value` (binary or string, null for none), `timestamp` (int64 milliseconds or an Arrow
    timestamp, which is rounded down; -1 for none), `headers` (list of struct key, value; null for none) and `offset`
    (int64, ascending, gaps allowed); all but `timestamp` may be missing, others are not looked at. Without `offset`
    rows are numbered from `first_offset`. What is yielded does not change later.

    Raises InvalidRecordError (a header without a key), InvalidTimestampError (a null or negative one other than -1),
    RecordListTooLargeError (a record beyond 2 GiB), ValueError (offsets that do not ascend, a column of another type).
    Thread-safe, and parallel.
    """
    return _Encoding(columns, first_offset, settings or BatchSettings()).batches()


class _Encoding:
    """One call of `encode_batches`. Holds the arrays whose addresses stand in the context."""

    def __init__(self, columns: pa.RecordBatch, first_offset: int, settings: BatchSettings) -> None:
        self._k = k = native.encode
        self._settings = settings
        self._rows = columns.num_rows
        self._context = c = k.EncodeContext()
        self._table: Any = np.empty(_TABLE_ROWS, k.batch_dtype())
        self._arrays = arrays = _Arrays(columns)
        _set_input(c.key, arrays.key)
        _set_input(c.value, arrays.value)
        if arrays.headers is not None:
            _set_input(c.header_key, arrays.header_keys)
            _set_input(c.header_value, arrays.header_values)
            validity, offsets = arrays.headers.buffers()[:2]
            c.headers.offsets = offsets.address + 4 * arrays.headers.offset
            c.headers.valid = 0 if validity is None else validity.address
            c.headers.bit = arrays.headers.offset
        c.offset = 0 if arrays.offset is None else _int64_address(arrays.offset)
        c.timestamp = _int64_address(arrays.timestamp)
        c.first_offset, c.rows = first_offset, self._rows
        c.batch_bytes, c.batch_records = settings.batch_bytes, settings.batch_records
        c.attributes = fmt.TRANSACTIONAL_BIT if settings.is_transactional else 0
        c.leader_epoch = settings.partition_leader_epoch
        c.producer_id, c.producer_epoch = settings.producer_id, settings.producer_epoch
        c.sequence = settings.base_sequence
        c.with_crc = settings.codec is Codec.NONE
        c.table, c.table_rows = self._table.ctypes.data, _TABLE_ROWS

    def batches(self) -> Iterator[EncodedBatch]:
        k, c = self._k, self._context
        row, size = 0, max(_OUTPUT_BYTES, 2 * self._settings.batch_bytes)
        while row < self._rows:
            output = pa.allocate_buffer(size)
            c.out, c.out_size, c.batches = output.address, size, 0
            row = k.encode(c.address, row)
            status, count = c.status, c.batches
            view = memoryview(output)
            for entry in self._table[:count][_WANTED].tolist():
                yield self._batch(view, *entry)
            if status == k.ROOM:
                if not count:
                    size = max(2 * size, c.needed)
            elif status != k.DONE:
                raise self._error(status, row)

    def _batch(  # noqa: PLR0917
        self,
        output: memoryview,
        position: int,
        size: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        count: int,
        sequence: int,
    ) -> EncodedBatch:
        data: Buffer = output[position : position + size]
        if self._settings.codec is not Codec.NONE:
            data = self._compressed(output[position : position + size])
        epoch = self._settings.partition_leader_epoch
        return EncodedBatch(data, base_offset, last_offset, max_timestamp, count, sequence, epoch)

    def _compressed(self, plain: memoryview) -> bytes:
        """Return the batch with its records compressed: header, attributes and length to match, and the CRC."""
        settings = self._settings
        batch = bytearray(plain[: fmt.HEADER_SIZE])
        batch += compress(settings.codec, plain[fmt.HEADER_SIZE :], settings.level)
        (attributes,) = fmt.INT16.unpack_from(batch, fmt.ATTRIBUTES_AT)
        fmt.INT16.pack_into(batch, fmt.ATTRIBUTES_AT, attributes | settings.codec)
        fmt.INT32.pack_into(batch, fmt.LENGTH_AT, len(batch) - fmt.LOG_OVERHEAD)
        fmt.UINT32.pack_into(batch, fmt.CRC_AT, crc32c(memoryview(batch)[fmt.ATTRIBUTES_AT :]))
        return bytes(batch)

    def _error(self, status: int, row: int) -> Exception:
        k = self._k
        if status == k.NULL_HEADER_KEY:
            return InvalidRecordError(f"row {row}: a header has no key")
        if status == k.NEGATIVE_TIMESTAMP:
            timestamp = self._arrays.timestamp[row].as_py()
            return InvalidTimestampError(f"row {row}: timestamp {timestamp} ms lies before 1970-01-01")
        if status == k.TOO_LARGE:
            return RecordListTooLargeError(f"row {row}: the record is larger than a batch can be (2 GiB)")
        return ValueError(f"row {row}: its offset is not after that of the row before it")


class _Arrays:
    """The columns, each in the one type that the native loop reads."""

    def __init__(self, columns: pa.RecordBatch) -> None:
        names = columns.schema.names
        self.key = _binary(columns, "key") if "key" in names else None
        self.value = _binary(columns, "value") if "value" in names else None
        self.offset = _integers(columns, "offset", pa.int64()) if "offset" in names else None
        self.timestamp = _timestamps(columns)
        self.headers: Any = None
        self.header_keys: Any = None
        self.header_values: Any = None
        if "headers" in names:
            headers = columns.column("headers")
            if headers.null_count < len(headers):
                self.headers = _cast(headers, "headers", pa.list_(HEADER_TYPE))
                # Of the whole child, whatever part of it the list refers to; a null struct has a null key.
                self.header_keys, self.header_values = (
                    _cast(each, "headers", pa.binary()) for each in self.headers.values.flatten()
                )


def _binary(columns: pa.RecordBatch, name: str) -> pa.Array | None:
    array = columns.column(name)
    if array.null_count == len(array):
        return None
    return _cast(array, name, pa.binary())


def _integers(columns: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    array = _cast(columns.column(name), name, kind)
    if array.null_count:
        raise ValueError(f"column {name} has nulls")
    return array


def _timestamps(columns: pa.RecordBatch) -> pa.Array:
    array = columns.column("timestamp")
    if array.null_count:
        row = pc.index(pc.is_null(array), True).as_py()
        raise InvalidTimestampError(f"row {row}: the timestamp is null")
    kind = array.type
    if pa.types.is_timestamp(kind):
        ticks = array.view(pa.int64())
        per_ms = {"us": 1_000, "ns": 1_000_000}.get(kind.unit)
        if kind.unit == "s":
            return pc.multiply(ticks, 1_000)
        return ticks if per_ms is None else pa.array(np.floor_divide(ticks.to_numpy(), per_ms))
    return _cast(array, "timestamp", pa.int64())


def _cast(array: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name} is {array.type}, expected {kind}: {error}") from error


def _set_input(column: Any, array: pa.Array | None) -> None:
    """Let an input of the native loop be this array; None, and one without content, stays all null."""
    if array is None:
        return
    validity, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return
    column.offsets = offsets.address + 4 * array.offset
    column.data = 0 if data is None else data.address
    column.valid = 0 if validity is None else validity.address
    column.bit = array.offset


def _int64_address(array: pa.Array) -> int:
    values = array.buffers()[1]
    return 0 if values is None else int(values.address) + 8 * int(array.offset)
