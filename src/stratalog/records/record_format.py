"""Records inside a batch: the plain decoder and encoder.

    length          varint   bytes after this field
    attributes      int8     unused, 0
    timestamp delta varlong  to the batch's base timestamp
    offset delta    varint   to the batch's base offset
    key length      varint   -1: null
    key
    value length    varint   -1: null
    value
    header count    varint
    headers         each: key length varint, key (UTF-8), value length varint (-1: null), value

Varints are zigzag. Source: Kafka's `DefaultRecord`. Reading is as strict as there: the fields of a record
must fill its length exactly, and the records must fill the batch exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stratalog.errors import InvalidRecordError
from stratalog.records import batch_format as fmt
from stratalog.records.record import Header, Record
from stratalog.util import VARINT_BYTES_MAX, VARLONG_BYTES_MAX, encode_varint

if TYPE_CHECKING:
    from stratalog.records.batch import RecordBatch

_COPY_SIZE_MAX = 16 * 1024 * 1024


def parse_records(batch: RecordBatch, payload: memoryview) -> Iterator[Record]:
    """Decode the decompressed `payload` of `batch`.

    Raises InvalidRecordError naming the batch, the position in the payload and what was expected there.
    """
    try:
        yield from _Parser(batch, payload).records()
    except _MalformedError as error:
        raise InvalidRecordError(str(error), where=batch.name) from None


def record_heads(batch: RecordBatch, payload: memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield timestamp delta, offset delta and key size of each record. Reads and raises the same as `parse_records`."""
    parser = _Parser(batch, payload)
    try:
        for _ in parser.bodies():
            timestamp_delta, offset_delta = parser.varlong(), parser.varint()
            key_size = parser.varint()
            parser.skip(max(key_size, 0))
            parser.skip(max(parser.varint(), 0))
            parser.skip_headers()
            yield timestamp_delta, offset_delta, key_size
    except _MalformedError as error:
        raise InvalidRecordError(str(error), where=batch.name) from None


class _MalformedError(Exception):
    """A record that is none; `parse_records` adds which batch."""


class _Parser:
    """One pass over a payload. Every read is checked against `end`, the end of the record at hand."""

    def __init__(self, batch: RecordBatch, payload: memoryview) -> None:
        self.batch = batch
        # Bytes are quicker to index, but not worth a copy of what is huge.
        self.data = payload.tobytes() if payload.nbytes <= _COPY_SIZE_MAX else payload
        self.position = 0
        self.end = len(self.data)

    def bodies(self) -> Iterator[None]:
        """Yield for each record, with the position after its attributes. The caller moves it to the record's end."""
        count = self.batch.record_count
        if count < 0:
            raise _MalformedError(f"record count {count} is negative")
        for index in range(count):
            self.end = len(self.data)
            if self.position >= self.end:
                raise _MalformedError(f"the records end at {self.end} after {index} records, expected {count}")
            length = self.varint()
            start = self.position
            if length < 0 or start + length > self.end:
                raise _MalformedError(
                    f"record {index} at {start} has length {length}, but {self.end - start} bytes remain"
                )
            self.end = start + length
            self.skip(1)
            yield
            if self.position != self.end:
                raise _MalformedError(
                    f"record {index} at {start} has length {length}, but its fields take {self.position - start} bytes"
                )
        if self.position != len(self.data):
            raise _MalformedError(
                f"{len(self.data) - self.position} bytes remain at {self.position} after the last of {count} records"
            )

    def records(self) -> Iterator[Record]:
        batch = self.batch
        base_offset, base_sequence = batch.base_offset, batch.base_sequence
        append_time = batch.max_timestamp if batch.timestamp_type == fmt.LOG_APPEND_TIME else None
        base_timestamp = batch.base_timestamp
        for _ in self.bodies():
            timestamp_delta = self.varlong()
            offset_delta = self.varint()
            key = self.optional_bytes()
            value = self.optional_bytes()
            headers = self.headers()
            yield Record(
                to_int64(base_offset + offset_delta),
                to_int64(base_timestamp + timestamp_delta) if append_time is None else append_time,
                key,
                value,
                headers,
                fmt.NO_SEQUENCE if base_sequence < 0 else to_int32_sequence(base_sequence, offset_delta),
            )

    def unsigned(self, bytes_max: int) -> int:
        position = self.position
        end = self.end
        data = self.data
        if position < end and data[position] < 0x80:
            self.position = position + 1
            return data[position]
        value = 0
        for n in range(bytes_max):
            if position + n >= end:
                raise _MalformedError(f"varint at {position} runs past the end of its record at {end}")
            byte = data[position + n]
            value |= (byte & 0x7F) << (7 * n)
            if byte < 0x80:
                self.position = position + n + 1
                return value
        raise _MalformedError(f"varint at {position} is longer than {bytes_max} bytes")

    def varint(self) -> int:
        raw = self.unsigned(VARINT_BYTES_MAX) & 0xFFFF_FFFF
        return (raw >> 1) ^ -(raw & 1)

    def varlong(self) -> int:
        raw = self.unsigned(VARLONG_BYTES_MAX) & 0xFFFF_FFFF_FFFF_FFFF
        return (raw >> 1) ^ -(raw & 1)

    def skip(self, size: int) -> int:
        start = self.position
        if size > self.end - start:
            raise _MalformedError(f"field of {size} bytes at {start} runs past the end of its record at {self.end}")
        self.position = start + size
        return start

    def optional_bytes(self) -> bytes | None:
        size = self.varint()
        if size < 0:
            return None
        start = self.skip(size)
        return bytes(self.data[start : start + size])

    def header_count(self) -> int:
        at = self.position
        count = self.varint()
        if count < 0 or count > self.end - self.position:
            raise _MalformedError(
                f"header count {count} at {at}, but {self.end - self.position} bytes remain in the record"
            )
        return count

    def headers(self) -> tuple[Header, ...]:
        count = self.header_count()
        return tuple(self.header() for _ in range(count)) if count else ()

    def skip_headers(self) -> None:
        for _ in range(self.header_count()):
            self.header_key()
            self.skip(max(self.varint(), 0))

    def header_key(self) -> int:
        """Skip a header's key, and return its size."""
        at = self.position
        size = self.varint()
        if size < 0:
            raise _MalformedError(f"header key at {at} has negative length {size}")
        self.skip(size)
        return size

    def header(self) -> Header:
        size = self.header_key()
        key = bytes(self.data[self.position - size : self.position]).decode("utf-8", "replace")
        return key, self.optional_bytes()


def to_int64(value: int) -> int:
    """Wrap as Java's long does; only hostile deltas ever need it."""
    return (value + 0x8000_0000_0000_0000 & 0xFFFF_FFFF_FFFF_FFFF) - 0x8000_0000_0000_0000


def to_int32_sequence(base_sequence: int, offset_delta: int) -> int:
    """Return the sequence of a record; wraps within int32 for hostile deltas too."""
    total = fmt.increment_sequence(base_sequence, offset_delta)
    return (total + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000


def encode_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> None:
    """Append one record to `out`."""
    body = bytearray(1)
    body += encode_varint(timestamp_delta)
    body += encode_varint(offset_delta)
    _put_bytes(body, key)
    _put_bytes(body, value)
    body += encode_varint(len(headers))
    for name, content in headers:
        _put_bytes(body, name.encode())
        _put_bytes(body, content)
    out += encode_varint(len(body))
    out += body


_NULL = encode_varint(-1)


def _put_bytes(body: bytearray, data: bytes | None) -> None:
    if data is None:
        body += _NULL
    else:
        body += encode_varint(len(data))
        body += data
