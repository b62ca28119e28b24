"""`remote_log_metadata_snapshot`: what the events of one metadata partition add up to, for a start not to replay them.

    at  size  field                                          big-endian throughout
     0     8  magic, "strataRM"
     8     4  version = 1
    12     4  CRC-32C of everything that follows
    16     8  log start offset of the metadata partition
    24     8  next offset: every event below it is in here, none from it on
    32     8  offset of the last event below it, -1 when there is none
    40     4  CRC-32C of that event's value, 0 when there is none
    44     4  count of user partitions, and for each of them

    a deletion     int8: 1 and an int32 length and a partition delete event, as in the topic; 0 when none is under way
    a partition    an int32 length and its TopicIdPartition: id (16), partition (int32), name (UTF-8)
    highest        int32 count, and for each leader epoch int32, and int64 the last offset of any finished segment
    segments       int32 count, and for each an int32 length and a segment event, as in the topic, in its present state

The topic is the truth. A snapshot stands for its beginning only as long as that beginning is the one which it was made
of: same start, not cut below the next offset, the same last event. `docs/formats/remote_log_metadata.md` has an
example.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from stratalog.errors import CorruptRecordError, CorruptSnapshotError
from stratalog.log.format import REMOTE_METADATA_SNAPSHOT
from stratalog.remote.api import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from stratalog.remote.metadata.cache import CacheContent
from stratalog.remote.metadata.serde import decode, encode
from stratalog.util import crc32c

SNAPSHOT_FILE: Final = REMOTE_METADATA_SNAPSHOT
MAGIC: Final = b"strataRM"
VERSION: Final = 1

_HEAD = struct.Struct(">8siI")
_COVERS = struct.Struct(">qqqI")
_INT8 = struct.Struct(">b")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">16si")
_EPOCH = struct.Struct(">iq")

_Event = TypeVar("_Event", RemoteLogSegmentMetadata, RemotePartitionDeleteMetadata)


@dataclass(frozen=True, slots=True)
class Covers:
    """The events of a metadata partition in a snapshot: [log_start_offset, next_offset)."""

    log_start_offset: int
    next_offset: int
    #: Offset of the last event, or -1.
    last_event_offset: int
    #: CRC-32C of its value.
    last_event_crc: int

    @property
    def last_event(self) -> tuple[int, int]:
        return self.last_event_offset, self.last_event_crc


@dataclass(frozen=True, slots=True)
class PartitionContent:
    """The state of one user partition: its segments, and its deletion if one is in progress."""

    cache: CacheContent
    deletion: RemotePartitionDeleteMetadata | None


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The state of a metadata partition at `covers.next_offset`."""

    covers: Covers
    partitions: dict[TopicIdPartition, PartitionContent]


def encode_snapshot(snapshot: MetadataSnapshot) -> bytes:
    covers = snapshot.covers
    parts = [
        _COVERS.pack(covers.log_start_offset, covers.next_offset, *covers.last_event),
        _INT32.pack(len(snapshot.partitions)),
    ]
    for partition, content in snapshot.partitions.items():
        parts.append(_INT8.pack(content.deletion is not None))
        if content.deletion is not None:
            parts += _sized(encode(content.deletion))
        parts += _sized(_PARTITION.pack(partition.topic_id.bytes, partition.partition) + partition.topic.encode())
        highest = content.cache.highest_offsets
        parts.append(_INT32.pack(len(highest)))
        parts += (_EPOCH.pack(epoch, offset) for epoch, offset in highest.items())
        parts.append(_INT32.pack(len(content.cache.segments)))
        for segment in content.cache.segments:
            parts += _sized(encode(segment))
    body = b"".join(parts)
    return _HEAD.pack(MAGIC, VERSION, crc32c(body)) + body


def _sized(data: bytes) -> tuple[bytes, bytes]:
    return _INT32.pack(len(data)), data


def decode_snapshot(data: bytes) -> MetadataSnapshot:
    """Return the snapshot in `data`. CorruptSnapshotError for damage or a later version."""
    if len(data) < _HEAD.size + _COVERS.size + _INT32.size:
        raise CorruptSnapshotError(f"{SNAPSHOT_FILE}: {len(data)} bytes are not a snapshot of remote log metadata")
    magic, version, crc = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise CorruptSnapshotError(f"{SNAPSHOT_FILE} begins with {magic!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise CorruptSnapshotError(f"{SNAPSHOT_FILE} has version {version}, expected {VERSION}")
    computed = crc32c(memoryview(data)[_HEAD.size :])
    if computed != crc:
        raise CorruptSnapshotError(f"{SNAPSHOT_FILE}: stored CRC-32C {crc:#010x}, computed {computed:#010x}")
    try:
        return _Reader(data, _HEAD.size).snapshot()
    except (struct.error, ValueError, CorruptRecordError) as error:
        raise CorruptSnapshotError(
            f"{SNAPSHOT_FILE}: its checksum is valid, but its content is not: {error}"
        ) from error


class _Reader:
    """Read consecutive fields. Raises struct.error and ValueError for invalid data."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def snapshot(self) -> MetadataSnapshot:
        covers = Covers(*self._take(_COVERS))
        partitions = dict(self._partition() for _ in range(self._int32()))
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes too many at position {self._at}")
        return MetadataSnapshot(covers, partitions)

    def _partition(self) -> tuple[TopicIdPartition, PartitionContent]:
        deletion = None
        if self._take(_INT8)[0]:
            deletion = _expect(self._event(), RemotePartitionDeleteMetadata)
        raw = self._bytes()
        topic_id, number = _PARTITION.unpack_from(raw)
        partition = TopicIdPartition(UUID(bytes=topic_id), raw[_PARTITION.size :].decode(), number)
        highest: dict[int, int] = {}
        for _ in range(self._int32()):
            epoch, offset = self._take(_EPOCH)
            highest[epoch] = offset
        segments = tuple(_expect(self._event(), RemoteLogSegmentMetadata) for _ in range(self._int32()))
        return partition, PartitionContent(CacheContent(segments, highest), deletion)

    def _take(self, fields: struct.Struct) -> tuple[int, ...]:
        at, self._at = self._at, self._at + fields.size
        return fields.unpack_from(self._data, at)

    def _int32(self) -> int:
        return self._take(_INT32)[0]

    def _bytes(self) -> bytes:
        size = self._int32()
        at, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise ValueError(f"{size} bytes at position {at} run past the end at {len(self._data)}")
        return self._data[at : self._at]

    def _event(self) -> RemoteLogMetadata:
        return decode(self._bytes())


def _expect(event: RemoteLogMetadata, kind: type[_Event]) -> _Event:
    if not isinstance(event, kind):
        raise ValueError(f"an event is {type(event).__name__}, expected {kind.__name__}")
    return event
