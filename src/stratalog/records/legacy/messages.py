"""Messages of formats 0 and 1 as batches: a message as a batch of one record, a wrapper as one of those inside.

As in Kafka 4 they are read wherever a log still has them, and never written. They have no leader epoch, producer,
sequence, transaction or headers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError, InvalidRecordError
from stratalog.records import batch_format as fmt
from stratalog.records.batch import RecordBatch
from stratalog.records.compression import DECOMPRESSED_SIZE_MAX, Codec, decompress
from stratalog.records.legacy import message_format as legacy
from stratalog.records.legacy.lz4 import with_right_checksum
from stratalog.records.record import Record

_MAGIC_0: Final = 0


class LegacyBatch(RecordBatch):
    """One message, or wrapper, at `start` of `buffer`; see `RecordBatch`.

    `base_offset`, `last_offset_delta` and `record_count` of a wrapper are inside: reading them decompresses it, with
    the errors of `records()`. Everything else only needs the header.
    """

    __slots__ = ("_base_offset",)

    def __init__(self, buffer: Buffer, start: int = 0) -> None:
        self.buffer = buffer
        self.start = start
        try:
            self.header = legacy.read_header(buffer, start)
        except (struct.error, IndexError, ValueError) as error:
            raise CorruptRecordError(f"message at position {start}: its header is not all there: {error}") from None
        self._base_offset: int | None = None if self.is_wrapper else self.header[0]

    def __repr__(self) -> str:
        return (
            f"LegacyBatch(format {self.magic}, last offset {self.last_offset}, {self.size} bytes at {self.start},"
            f" {self.codec_name})"
        )

    @property
    def is_wrapper(self) -> bool:
        """Whether it contains other messages, compressed."""
        return bool(self.header[5] & fmt.CODEC_MASK)

    @property
    def base_offset(self) -> int:
        if self._base_offset is None:
            self._base_offset = self._inner_records(DECOMPRESSED_SIZE_MAX)[0].offset
        return self._base_offset

    @property
    def last_offset(self) -> int:
        return self.header[0]

    @property
    def last_offset_delta(self) -> int:
        return self.last_offset - self.base_offset

    @property
    def record_count(self) -> int:
        return len(self._inner_records(DECOMPRESSED_SIZE_MAX)) if self.is_wrapper else 1

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime, -1 for format 0, which has no timestamps."""
        return legacy.NO_TIMESTAMP_TYPE if self.magic == _MAGIC_0 else super().timestamp_type

    def as_memoryview(self) -> memoryview:
        view = memoryview(self.buffer)
        end = self.start + self.size
        if self.size < legacy.SIZE_MIN[self.magic] or end > len(view):
            raise CorruptRecordError(
                f"size {self.size} does not fit between the smallest message,"
                f" {legacy.SIZE_MIN[self.magic]} bytes, and the {len(view) - self.start} bytes that are there",
                where=self.name,
            )
        return view[self.start : end]

    @property
    def records_payload(self) -> memoryview:
        """The value: of a wrapper, the messages inside, compressed."""
        value = _parse(self.as_memoryview(), self.name).value
        if value is None:
            raise InvalidRecordError("a wrapper has no value, expected messages", where=self.name)
        return memoryview(value)

    @property
    def computed_crc(self) -> int:
        return zlib.crc32(self.as_memoryview()[legacy.CRC_COVERS_FROM :])

    def ensure_valid(self) -> None:
        """Raise CorruptRecordError unless size and CRC hold; the messages in a wrapper are checked by `records()`."""
        _ensure_crc(self.as_memoryview(), self.name)

    def decompressed_payload(self, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> memoryview:
        """Return the messages in a wrapper; the value of a message that is none."""
        codec = self.codec
        payload = self.records_payload
        if codec is Codec.NONE:
            return payload
        if codec is Codec.ZSTD:
            raise InvalidRecordError(f"zstd in message format {self.magic}, which is older than it", where=self.name)
        try:
            if codec is Codec.LZ4 and self.magic == _MAGIC_0:
                return decompress(codec, with_right_checksum(payload), size_max=size_max)
            return decompress(codec, payload, size_max=size_max)
        except CorruptRecordError as error:
            raise CorruptRecordError(str(error), where=self.name) from error.__cause__

    def records(self, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> Iterator[Record]:
        """Return the message, or those in the wrapper, in order, with absolute offsets.

        CRCs of messages inside are checked, that of this one is not. Raises CorruptRecordError (sizes, inner CRC,
        decompression), InvalidRecordError (a wrapper that is empty, holds another wrapper, or has an offset below
        theirs; lengths beyond their message).
        """
        if self.is_wrapper:
            return iter(self._inner_records(size_max))
        message = _parse(self.as_memoryview(), self.name)
        return iter((Record(self.last_offset, self.max_timestamp, message.key, message.value),))

    def inner_magics(self) -> list[int]:
        """Return the format of each of `records()`. Kafka reads wrappers of mixed formats, but accepts none."""
        if not self.is_wrapper:
            return [self.magic]
        return [message.magic for message in _iter_inner(self.decompressed_payload(), self.name)]

    def _inner_records(self, size_max: int) -> list[Record]:
        append_time = self.max_timestamp if self.timestamp_type == fmt.LOG_APPEND_TIME else None
        messages = list(_iter_inner(self.decompressed_payload(size_max=size_max), self.name))
        if not messages:
            raise InvalidRecordError("a wrapper with no message in it", where=self.name)
        shift = self._offset_shift(messages[-1].offset)
        return [
            Record(
                message.offset + shift,
                message.timestamp_ms if append_time is None or not message.magic else append_time,
                message.key,
                message.value,
            )
            for message in messages
        ]

    def _offset_shift(self, last_inner: int) -> int:
        """Return what makes inner offsets absolute. Old clients numbered from 0 in a wrapper at 0."""
        last_offset = self.last_offset
        if self.magic == _MAGIC_0 or not last_offset:
            return 0
        if last_offset < last_inner:
            raise InvalidRecordError(
                f"the wrapper's offset is less than that of the last message in it, {last_inner}", where=self.name
            )
        return last_offset - last_inner

    @property
    def name(self) -> str:
        return f"message at position {self.start} (format {self.magic}, offset {self.last_offset})"


class _Message(NamedTuple):
    """The fields of one message, offset and timestamp as they stand there."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def _parse(message: memoryview, name: str) -> _Message:
    """Return the fields of a whole message. Raises InvalidRecordError for lengths that do not fit."""
    header = legacy.read_header(message, 0)
    key, position = _sized(message, legacy.KEY_AT[header[3]], name)
    value, _ = _sized(message, position, name)
    return _Message(header[0], header[3], header[5], header[7], key, value)


def _sized(message: memoryview, at: int, name: str) -> tuple[bytes | None, int]:
    """Return the bytes after their int32 length, and the position after them."""
    if at + 4 > len(message):
        raise InvalidRecordError(f"no length at byte {at} of {len(message)}", where=name)
    (size,) = fmt.INT32.unpack_from(message, at)
    if size < 0:
        return None, at + 4
    end: int = at + 4 + size
    if end > len(message):
        raise InvalidRecordError(f"length {size} at byte {at}, but the message ends at {len(message)}", where=name)
    return message[at + 4 : end].tobytes(), end


def _iter_inner(data: memoryview, name: str) -> Iterator[_Message]:
    """Yield the messages in a decompressed wrapper; one that is cut off at the end is left out, as by Kafka."""
    position = 0
    while len(data) - position >= fmt.LOG_OVERHEAD:
        (length,) = fmt.INT32.unpack_from(data, position + fmt.LENGTH_AT)
        if length < fmt.LEGACY_LENGTH_MIN:
            raise CorruptRecordError(
                f"message length {length} at byte {position} inside, expected at least {fmt.LEGACY_LENGTH_MIN}",
                where=name,
            )
        end: int = position + fmt.LOG_OVERHEAD + length
        if end > len(data):
            return
        inner = data[position:end]
        where = f"{name}: message at byte {position} inside"
        magic = inner[fmt.MAGIC_AT]
        if magic > legacy.MAGIC_MAX or end - position < legacy.SIZE_MIN[magic]:
            raise InvalidRecordError(f"{where}: magic {magic} and length {length}, expected a message of format 0 or 1")
        _ensure_crc(inner, where)
        message = _parse(inner, where)
        if message.attributes & fmt.CODEC_MASK:
            raise InvalidRecordError(f"{where}: compressed once more")
        yield message
        position = end


def _ensure_crc(message: memoryview, name: str) -> None:
    (stored,) = fmt.UINT32.unpack_from(message, legacy.CRC_AT)
    computed = zlib.crc32(message[legacy.CRC_COVERS_FROM :])
    if computed != stored:
        raise CorruptRecordError(f"{name} is corrupt: stored CRC-32 {stored:#010x}, computed {computed:#010x}")
