"""Encode and decode the events in `__remote_log_metadata`: Kafka's messages in Kafka's frame.

    frame    frame version (unsigned varint, 1), api key (unsigned varint), version (unsigned varint, 0), message
    messages RemoteLogSegmentMetadataRecord (0), RemoteLogSegmentMetadataUpdateRecord (1),
             RemotePartitionDeleteMetadataRecord (2); all of their versions are flexible

A segment's size is an int32 in Kafka's schema. A larger one is clamped to 2^31 - 1 there, and the true size is kept in
a custom tagged field (`TRUE_SIZE_TAG`), which Kafka skips. `docs/formats/remote_log_metadata.md` has the layout with an
example.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from uuid import UUID

from stratalog.errors import CorruptRecordError
from stratalog.remote.api import (
    INT32_MAX,
    CustomMetadata,
    RemoteLogMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from stratalog.remote.metadata.serde_fast import decode_usual
from stratalog.util import VARINT_BYTES_MAX, decode_unsigned, encode_unsigned

logger = logging.getLogger(__name__)

FRAME_VERSION = 1
SEGMENT_KEY = 0
UPDATE_KEY = 1
PARTITION_DELETE_KEY = 2
MESSAGE_VERSION = 0

TXN_INDEX_EMPTY_TAG = 0
#: Custom tag: int64, the size of a segment that exceeds Kafka's int32. Far from the tags that Kafka assigns.
TRUE_SIZE_TAG = 10_000

_INT8 = struct.Struct(">b")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def encode(event: RemoteLogMetadata) -> bytes:
    """Return the bytes of an event, as Kafka's `RemoteLogMetadataSerde` writes them."""
    if isinstance(event, RemoteLogSegmentMetadata):
        return _frame(SEGMENT_KEY) + _encode_segment(event)
    if isinstance(event, RemoteLogSegmentMetadataUpdate):
        return _frame(UPDATE_KEY) + _encode_update(event)
    return _frame(PARTITION_DELETE_KEY) + _encode_partition_delete(event)


def decode(data: bytes) -> RemoteLogMetadata:
    """Return the event in `data`. CorruptRecordError says what is wrong and where."""
    try:
        usual = decode_usual(data)
    except ValueError:
        usual = None  # reported below
    return decode_plainly(data) if usual is None else usual


def decode_plainly(data: bytes) -> RemoteLogMetadata:
    """Decode field by field, for all forms of an event."""
    reader = _Reader(data)
    frame_version, key, version = reader.unsigned(), reader.unsigned(), reader.unsigned()
    if frame_version != FRAME_VERSION:
        raise CorruptRecordError(f"remote log metadata: frame version {frame_version}, expected {FRAME_VERSION}")
    decoder = _DECODERS.get(key)
    if decoder is None:
        raise CorruptRecordError(f"remote log metadata: api key {key} is unknown")
    if version != MESSAGE_VERSION:
        raise CorruptRecordError(f"remote log metadata: version {version} of api key {key} is unknown")
    try:
        event = decoder(reader)
    except ValueError as error:  # values that no segment can have
        raise CorruptRecordError(f"remote log metadata, api key {key}: {error}") from error
    reader.end()
    return event


# --- writing --------------------------------------------------------------------------------------------------------


def _frame(key: int) -> bytes:
    return encode_unsigned(FRAME_VERSION) + encode_unsigned(key) + encode_unsigned(MESSAGE_VERSION)


def _partition(partition: TopicIdPartition) -> bytes:
    name = partition.topic.encode()
    return (
        encode_unsigned(len(name) + 1) + name + partition.topic_id.bytes + _INT32.pack(partition.partition) + _tags({})
    )


def _segment_id(segment_id: RemoteLogSegmentId) -> bytes:
    return _partition(segment_id.topic_id_partition) + segment_id.id.bytes + _tags({})


def _custom(custom: CustomMetadata | None) -> bytes:
    return encode_unsigned(0) if custom is None else encode_unsigned(len(custom.value) + 1) + custom.value


def _tags(fields: dict[int, bytes]) -> bytes:
    out = encode_unsigned(len(fields))
    for tag, value in sorted(fields.items()):
        out += encode_unsigned(tag) + encode_unsigned(len(value)) + value
    return out


def _encode_segment(event: RemoteLogSegmentMetadata) -> bytes:
    tags = {TXN_INDEX_EMPTY_TAG: b"\x01"} if event.txn_index_empty else {}
    size = event.segment_size_bytes
    if size > INT32_MAX:
        logger.warning(
            "%s has %d bytes; its metadata have %d for readers without larger sizes",
            event.segment_id,
            size,
            INT32_MAX,
        )
        tags[TRUE_SIZE_TAG] = _INT64.pack(size)
        size = INT32_MAX
    epochs = event.segment_leader_epochs
    return b"".join(
        (
            _segment_id(event.segment_id),
            _INT64.pack(event.start_offset),
            _INT64.pack(event.end_offset),
            _INT32.pack(event.broker_id),
            _INT64.pack(event.max_timestamp_ms),
            _INT64.pack(event.event_timestamp_ms),
            encode_unsigned(len(epochs) + 1),
            *(_INT32.pack(epoch) + _INT64.pack(offset) + _tags({}) for epoch, offset in epochs.items()),
            _INT32.pack(size),
            _custom(event.custom_metadata),
            _INT8.pack(event.state),
            _tags(tags),
        )
    )


def _encode_update(event: RemoteLogSegmentMetadataUpdate) -> bytes:
    return b"".join(
        (
            _segment_id(event.segment_id),
            _INT32.pack(event.broker_id),
            _INT64.pack(event.event_timestamp_ms),
            _custom(event.custom_metadata),
            _INT8.pack(event.state),
            _tags({}),
        )
    )


def _encode_partition_delete(event: RemotePartitionDeleteMetadata) -> bytes:
    return b"".join(
        (
            _partition(event.topic_id_partition),
            _INT32.pack(event.broker_id),
            _INT64.pack(event.event_timestamp_ms),
            _INT8.pack(event.state),
            _tags({}),
        )
    )


# --- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    """Read consecutive fields. CorruptRecordError when they run past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        start, self._position = self._position, self._position + size
        if self._position > len(self._data):
            raise CorruptRecordError(
                f"remote log metadata: {size} bytes at position {start} run past the end at {len(self._data)}"
            )
        return self._data[start : self._position]

    def unsigned(self) -> int:
        value, self._position = decode_unsigned(self._data, self._position, VARINT_BYTES_MAX)
        return value

    def int8(self) -> int:
        return int(_INT8.unpack(self.take(1))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self.take(8))[0])

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def size(self, what: str) -> int:
        """Return a compact length: the count plus one, and never 0 where null is not allowed."""
        raw = self.unsigned()
        if raw == 0:
            raise CorruptRecordError(f"remote log metadata: {what} is null before position {self._position}")
        return raw - 1

    def string(self, what: str) -> str:
        raw = self.take(self.size(what))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise CorruptRecordError(f"remote log metadata: {what} is not UTF-8: {error}") from error

    def nullable_bytes(self) -> bytes | None:
        raw = self.unsigned()
        return None if raw == 0 else self.take(raw - 1)

    def tags(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self.unsigned()):
            tag = self.unsigned()
            found[tag] = self.take(self.unsigned())
        return found

    def end(self) -> None:
        rest = len(self._data) - self._position
        if rest:
            raise CorruptRecordError(f"remote log metadata: {rest} bytes too many at position {self._position}")


def _read_partition(reader: _Reader) -> TopicIdPartition:
    name, topic_id, partition = reader.string("topic name"), reader.uuid(), reader.int32()
    reader.tags()
    return TopicIdPartition(topic_id, name, partition)


def _read_segment_id(reader: _Reader) -> RemoteLogSegmentId:
    partition, segment_id = _read_partition(reader), reader.uuid()
    reader.tags()
    return RemoteLogSegmentId(partition, segment_id)


def _read_custom(reader: _Reader) -> CustomMetadata | None:
    value = reader.nullable_bytes()
    return None if value is None else CustomMetadata(value)


def _read_epoch(reader: _Reader) -> tuple[int, int]:
    entry = reader.int32(), reader.int64()
    reader.tags()
    return entry


def _decode_segment(reader: _Reader) -> RemoteLogSegmentMetadata:
    segment_id = _read_segment_id(reader)
    start_offset, end_offset, broker_id = reader.int64(), reader.int64(), reader.int32()
    max_timestamp_ms, event_timestamp_ms = reader.int64(), reader.int64()
    epochs = dict(_read_epoch(reader) for _ in range(reader.size("leader epochs")))
    size, custom, state = reader.int32(), _read_custom(reader), reader.int8()
    tags = reader.tags()
    if TRUE_SIZE_TAG in tags:
        size = _Reader(tags[TRUE_SIZE_TAG]).int64()
    return RemoteLogSegmentMetadata(
        segment_id=segment_id,
        start_offset=start_offset,
        end_offset=end_offset,
        max_timestamp_ms=max_timestamp_ms,
        broker_id=broker_id,
        event_timestamp_ms=event_timestamp_ms,
        segment_size_bytes=size,
        segment_leader_epochs=epochs,
        state=RemoteLogSegmentState(state),
        custom_metadata=custom,
        txn_index_empty=tags.get(TXN_INDEX_EMPTY_TAG, b"\x00") != b"\x00",
    )


def _decode_update(reader: _Reader) -> RemoteLogSegmentMetadataUpdate:
    segment_id = _read_segment_id(reader)
    broker_id, event_timestamp_ms = reader.int32(), reader.int64()
    custom, state = _read_custom(reader), RemoteLogSegmentState(reader.int8())
    reader.tags()
    return RemoteLogSegmentMetadataUpdate(segment_id, event_timestamp_ms, custom, state, broker_id)


def _decode_partition_delete(reader: _Reader) -> RemotePartitionDeleteMetadata:
    partition = _read_partition(reader)
    broker_id, event_timestamp_ms = reader.int32(), reader.int64()
    state = RemotePartitionDeleteState(reader.int8())
    reader.tags()
    return RemotePartitionDeleteMetadata(partition, state, event_timestamp_ms, broker_id)


_DECODERS: dict[int, Callable[[_Reader], RemoteLogMetadata]] = {
    SEGMENT_KEY: _decode_segment,
    UPDATE_KEY: _decode_update,
    PARTITION_DELETE_KEY: _decode_partition_delete,
}
