"""The Arrow buffers that `columns_kernel` fills: reserved before each call, made into arrays at the end."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import pyarrow as pa

from stratalog.errors import RecordListTooLargeError

ELEMENTS_MAX: Final = 0x7FFF_FFFF
"""What one Arrow array with 32-bit offsets can hold: bytes of data, or elements."""

_HEADER_SIZE_MIN = 2  # bytes of the smallest record header: empty key, null value
_KEY_SHARE = 8  # of what records take, keys are expected to take one part in this many


@dataclass(slots=True)
class _Slot:
    """One growing buffer: `bits` for each element of its `dimension` (a word of the context, counting what is used)."""

    address: int
    dimension: int
    bits: int
    buffer: Any = None

    def size_of(self, elements: int) -> int:
        """Bytes of so many elements, the one more that offsets have included."""
        return (elements * self.bits + 7 >> 3) + 4


class ColumnsOutput:
    """The buffers of one result, and the kernel's context that points at them.

    `rows` records in `data_size` bytes are expected, which gives the buffers their first sizes. What is reserved is
    bounded by the bytes there are to decode, never by what a header claims.
    """

    def __init__(self, kernel: ModuleType, schema: pa.Schema, *, rows: int, data_size: int) -> None:
        import numpy as np

        self._kernel = kernel
        self._schema = schema
        self._slots = {slot.address: slot for name in schema.names for slot in _slots(kernel, name)}
        wanted = {slot.dimension for slot in self._slots.values()}
        self._dimensions = sorted(wanted)
        self._expected = [rows, data_size // _KEY_SHARE, data_size, 0, 0, 0]
        self.context = np.zeros(kernel.CONTEXT_WORDS, np.int64)
        self.context_address = int(self.context.ctypes.data)
        for dimension in range(kernel.DIMENSIONS):
            if dimension not in wanted:
                self.context[kernel.C_CAPACITY + dimension] = kernel.UNLIMITED

    def reserve(self, rows: int, size: int) -> None:
        """Make room for up to `rows` more records that lie in `size` bytes; RecordListTooLargeError beyond Arrow's
        limit.
        """
        more = (rows, size, size, size // _HEADER_SIZE_MIN, size, size)
        for dimension in self._dimensions:
            needed = int(self.context[dimension]) + more[dimension]
            capacity = int(self.context[self._kernel.C_CAPACITY + dimension])
            if needed > ELEMENTS_MAX:
                raise RecordListTooLargeError(
                    f"a column would hold up to {needed} bytes or elements, Arrow's limit is {ELEMENTS_MAX}:"
                    " decode fewer bytes at once"
                )
            if needed > capacity:
                # A quarter more: the next batch is often a few bytes larger.
                wanted = max(needed + needed // 4, 2 * capacity, self._expected[dimension])
                self._grow(dimension, min(ELEMENTS_MAX, wanted))

    def _grow(self, dimension: int, capacity: int) -> None:
        """New buffers for `capacity` elements; only what is used is copied."""
        used = int(self.context[dimension])
        for slot in self._slots.values():
            if slot.dimension != dimension:
                continue
            grown = pa.allocate_buffer(slot.size_of(capacity) + int(self._kernel.DATA_SLACK))
            if used:
                ctypes.memmove(grown.address, slot.buffer.address, slot.size_of(used))
            slot.buffer = grown
            self.context[slot.address] = grown.address
        self.context[self._kernel.C_CAPACITY + dimension] = capacity

    def finish(self) -> pa.RecordBatch:
        """The columns; the buffers become theirs."""
        rows = int(self.context[self._kernel.C_ROWS])
        if not rows:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        if not self._schema.names:
            return rows_without_columns(rows)
        return pa.RecordBatch.from_arrays([self._array(name, rows) for name in self._schema.names], schema=self._schema)

    def _array(self, name: str, rows: int) -> pa.Array:
        k = self._kernel
        if name == "key":
            return self._binary(pa.binary(), rows, k.C_KEY_SIZE, k.C_KEY_OFFSETS, k.C_KEY_NULLS)
        if name == "value":
            return self._binary(pa.binary(), rows, k.C_VALUE_SIZE, k.C_VALUE_OFFSETS, k.C_VALUE_NULLS)
        if name == "headers":
            return self._headers(rows)
        word, width = _fixed_columns(k)[name]
        buffer = self._take(word, rows * width)
        return pa.Array.from_buffers(self._schema.field(name).type, rows, [None, buffer], 0)

    def _binary(self, kind: pa.DataType, rows: int, size: int, offsets: int, nulls: int) -> pa.Array:
        """A variable-length column: `offsets` is the first of its three address words (offsets, data, validity);
        without `nulls` there is no validity.
        """
        null_count = int(self.context[nulls]) if nulls else 0
        buffers = [
            self._take(offsets + 2, rows + 7 >> 3) if null_count else None,
            self._take(offsets, 4 * (rows + 1)),
            self._take(offsets + 1, int(self.context[size])),
        ]
        return pa.Array.from_buffers(kind, rows, buffers, null_count)

    def _headers(self, rows: int) -> pa.Array:
        k = self._kernel
        kind = self._schema.field("headers").type
        null_count = int(self.context[k.C_HEADERS_NULLS])
        if null_count == rows:
            return pa.nulls(rows, kind)
        count = int(self.context[k.C_HEADERS])
        keys = self._binary(pa.binary(), count, k.C_HEADER_KEY_SIZE, k.C_HEADER_KEY_OFFSETS, 0)
        keys = _as_text(keys) if self.context[k.C_NOT_ASCII] else keys.view(pa.string())
        values = self._binary(
            pa.binary(), count, k.C_HEADER_VALUE_SIZE, k.C_HEADER_VALUE_OFFSETS, k.C_HEADER_VALUE_NULLS
        )
        buffers = [
            self._take(k.C_HEADERS_VALID, rows + 7 >> 3) if null_count else None,
            self._take(k.C_HEADERS_OFFSETS, 4 * (rows + 1)),
        ]
        headers = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
        return pa.Array.from_buffers(kind, rows, buffers, null_count, children=[headers])

    def _take(self, word: int, size: int) -> pa.Buffer:
        return self._slots[word].buffer.slice(0, size)


def rows_without_columns(rows: int) -> pa.RecordBatch:
    """A batch that only knows how many rows it has."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def _as_text(keys: pa.Array) -> pa.Array:
    """`keys` as strings, with U+FFFD for what is not UTF-8."""
    text = keys.view(pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
    return text


def _fixed_columns(k: ModuleType) -> dict[str, tuple[int, int]]:
    """Address word and bytes per element of the columns of fixed width."""
    return {
        "offset": (k.C_OFFSET, 8),
        "timestamp": (k.C_TIMESTAMP, 8),
        "timestamp_type": (k.C_TIMESTAMP_TYPE, 4),
        "producer_id": (k.C_PRODUCER_ID, 8),
        "producer_epoch": (k.C_PRODUCER_EPOCH, 2),
        "sequence": (k.C_SEQUENCE, 4),
        "leader_epoch": (k.C_LEADER_EPOCH, 4),
    }


def _slots(k: ModuleType, name: str) -> list[_Slot]:
    """The buffers of one column."""
    if name == "key":
        return [
            _Slot(k.C_KEY_OFFSETS, k.C_ROWS, 32),
            _Slot(k.C_KEY_DATA, k.C_KEY_SIZE, 8),
            _Slot(k.C_KEY_VALID, k.C_ROWS, 1),
        ]
    if name == "value":
        return [
            _Slot(k.C_VALUE_OFFSETS, k.C_ROWS, 32),
            _Slot(k.C_VALUE_DATA, k.C_VALUE_SIZE, 8),
            _Slot(k.C_VALUE_VALID, k.C_ROWS, 1),
        ]
    if name == "headers":
        return [
            _Slot(k.C_HEADERS_OFFSETS, k.C_ROWS, 32),
            _Slot(k.C_HEADERS_VALID, k.C_ROWS, 1),
            _Slot(k.C_HEADER_KEY_OFFSETS, k.C_HEADERS, 32),
            _Slot(k.C_HEADER_KEY_DATA, k.C_HEADER_KEY_SIZE, 8),
            _Slot(k.C_HEADER_VALUE_OFFSETS, k.C_HEADERS, 32),
            _Slot(k.C_HEADER_VALUE_DATA, k.C_HEADER_VALUE_SIZE, 8),
            _Slot(k.C_HEADER_VALUE_VALID, k.C_HEADERS, 1),
        ]
    word, width = _fixed_columns(k)[name]
    return [_Slot(word, k.C_ROWS, 8 * width)]
