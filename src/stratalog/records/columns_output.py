"""The Arrow buffers that `native.columns` fills: reserved before each call, made into arrays at the end."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import pyarrow as pa

from stratalog.errors import RecordListTooLargeError

ELEMENTS_MAX: Final = 0x7FFF_FFFF
"""The most that an Arrow array with 32-bit offsets can hold: bytes of data, or elements."""

_KEY_SHARE = 8  # of what records take, keys are expected to take one part in this many
#: Bytes per element of the columns of fixed width.
_FIXED_WIDTHS: Final = {
    "offset": 8,
    "timestamp": 8,
    "timestamp_type": 4,
    "producer_id": 8,
    "producer_epoch": 2,
    "sequence": 4,
    "leader_epoch": 4,
}


@dataclass(slots=True)
class _Room:
    """The room that some buffers share: the kernel sees `used` and `capacity` in `memory`."""

    memory: Any
    #: One element more for so many bytes of records; 0: for each record.
    bytes_each: int
    #: Elements that are expected in all.
    expected: int

    def more(self, rows: int, size: int) -> int:
        """Return the most elements that `rows` records in `size` bytes can add."""
        return size // self.bytes_each if self.bytes_each else rows


@dataclass(slots=True)
class _Slot:
    """One growing buffer, of `bits` for each element of its room. Its address is field `field` of `owner`."""

    owner: Any
    field: str
    room: _Room
    bits: int
    buffer: Any = None

    def size_of(self, elements: int) -> int:
        """Return the bytes of so many elements, and of the additional one that offsets have."""
        return (elements * self.bits + 7 >> 3) + 4

    def grow(self, used: int, capacity: int, slack: int) -> None:
        """Move to a new buffer for `capacity` elements; only what is used is copied."""
        grown = pa.allocate_buffer(self.size_of(capacity) + slack)
        if used:
            ctypes.memmove(grown.address, self.buffer.address, self.size_of(used))
        self.buffer = grown
        setattr(self.owner, self.field, grown.address)


class ColumnsOutput:
    """The buffers of one result, and the kernel's context that points at them.

    Their first sizes follow from `rows` records in `data_size` bytes. Reservations are bounded by the bytes to decode,
    never by what a header claims.
    """

    def __init__(self, kernel: ModuleType, schema: pa.Schema, *, rows: int, data_size: int) -> None:
        self._slack: int = kernel.DATA_SLACK
        self._schema = schema
        self.context = c = kernel.DecodeContext()
        self._rooms = {
            "rows": _Room(c.rows, 0, rows),
            "key": _Room(c.key.bytes, 1, data_size // _KEY_SHARE),
            "value": _Room(c.value.bytes, 1, data_size),
            "headers": _Room(c.headers, kernel.HEADER_BYTES_MIN, 0),
            "header_key": _Room(c.header_key.bytes, 1, 0),
            "header_value": _Room(c.header_value.bytes, 1, 0),
        }
        self._slots = {(name, slot.field): slot for column in schema.names for name, slot in self._slots_of(column)}
        for room in self._rooms.values():
            if not self._slots_in(room):
                room.memory.capacity = kernel.UNLIMITED

    def _slots_of(self, name: str) -> list[tuple[str, _Slot]]:
        """Return the buffers of one column, each with the name of the part of the context that has its address."""
        if name in _FIXED_WIDTHS:
            return [("", _Slot(self.context, name, self._rooms["rows"], 8 * _FIXED_WIDTHS[name]))]
        if name != "headers":
            return self._bytes_slots(name, self._rooms["rows"])
        return [
            ("", _Slot(self.context, "headers_offsets", self._rooms["rows"], 32)),
            ("", _Slot(self.context, "headers_valid", self._rooms["rows"], 1)),
            *self._bytes_slots("header_key", self._rooms["headers"]),
            *self._bytes_slots("header_value", self._rooms["headers"]),
        ]

    def _bytes_slots(self, name: str, elements: _Room) -> list[tuple[str, _Slot]]:
        column = getattr(self.context, name)
        slots = [
            _Slot(column, "offsets", elements, 32),
            _Slot(column, "data", self._rooms[name], 8),
            _Slot(column, "valid", elements, 1),
        ]
        return [(name, slot) for slot in slots]

    def _slots_in(self, room: _Room) -> list[_Slot]:
        return [slot for slot in self._slots.values() if slot.room is room]

    def reserve(self, rows: int, size: int) -> None:
        """Make room for up to `rows` more records in `size` bytes. RecordListTooLargeError beyond Arrow's limit."""
        for room in self._rooms.values():
            slots = self._slots_in(room)
            if not slots:
                continue
            used, capacity = room.memory.used, room.memory.capacity
            needed = used + room.more(rows, size)
            if needed > ELEMENTS_MAX:
                raise RecordListTooLargeError(
                    f"a column would hold up to {needed} bytes or elements, Arrow's limit is {ELEMENTS_MAX}:"
                    " decode fewer bytes at once"
                )
            if needed > capacity:
                # A quarter more: the next batch is often a few bytes larger.
                room.memory.capacity = min(ELEMENTS_MAX, max(needed + needed // 4, 2 * capacity, room.expected))
                for slot in slots:
                    slot.grow(used, room.memory.capacity, self._slack)

    def finish(self) -> pa.RecordBatch:
        """Return the columns; the buffers become theirs."""
        rows = self.context.rows.used
        if not rows:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        if not self._schema.names:
            return rows_without_columns(rows)
        return pa.RecordBatch.from_arrays([self._array(name, rows) for name in self._schema.names], schema=self._schema)

    def _array(self, name: str, rows: int) -> pa.Array:
        if name == "headers":
            return self._headers(rows)
        if name not in _FIXED_WIDTHS:
            return self._binary(name, rows)
        buffer = self._take("", name, rows * _FIXED_WIDTHS[name])
        return pa.Array.from_buffers(self._schema.field(name).type, rows, [None, buffer], 0)

    def _binary(self, name: str, rows: int) -> pa.Array:
        """Return a variable-length column."""
        column = getattr(self.context, name)
        buffers = [
            self._take(name, "valid", rows + 7 >> 3) if column.nulls else None,
            self._take(name, "offsets", 4 * (rows + 1)),
            self._take(name, "data", column.bytes.used),
        ]
        return pa.Array.from_buffers(pa.binary(), rows, buffers, column.nulls)

    def _headers(self, rows: int) -> pa.Array:
        kind, context = self._schema.field("headers").type, self.context
        null_count = context.headers_nulls
        if null_count == rows:
            return pa.nulls(rows, kind)
        keys = self._binary("header_key", context.headers.used)
        keys = _as_text(keys) if context.not_ascii else keys.view(pa.string())
        values = self._binary("header_value", context.headers.used)
        buffers = [
            self._take("", "headers_valid", rows + 7 >> 3) if null_count else None,
            self._take("", "headers_offsets", 4 * (rows + 1)),
        ]
        headers = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
        return pa.Array.from_buffers(kind, rows, buffers, null_count, children=[headers])

    def _take(self, part: str, field: str, size: int) -> pa.Buffer:
        return self._slots[part, field].buffer.slice(0, size)


def rows_without_columns(rows: int) -> pa.RecordBatch:
    """Return a batch that only knows how many rows it has."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def _as_text(keys: pa.Array) -> pa.Array:
    """`keys` as strings, with U+FFFD for what is not UTF-8."""
    text = keys.view(pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
    return text
