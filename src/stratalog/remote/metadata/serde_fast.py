"""Decode the usual events of `__remote_log_metadata` without looking at every field's framing.

Nearly every event is a segment with one leader epoch or an update, with a short topic name, no custom metadata and no
tagged field but `TxnIndexEmpty`: a fixed layout after the topic's name, decoded by one `struct`. Other forms return
None here and are left to `serde.decode_plainly`, the reference implementation. A replay decodes every event.
"""

from __future__ import annotations

import struct
from uuid import UUID

from stratalog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)

_SEGMENT_FRAME = b"\x01\x00\x00"
_UPDATE_FRAME = b"\x01\x01\x00"
#: After the topic's name: its id, the partition, no tags.
_AFTER_NAME = struct.Struct(">16siB")
#: id, no tags, start, end, broker, max timestamp, event timestamp, one epoch (2), epoch, its start, no tags, size, no
#: custom metadata (0), state, count of tags
_SEGMENT = struct.Struct(">16sBqqiqqBiqBiBbB")
#: id, no tags, broker, event timestamp, no custom metadata (0), state, no tags
_UPDATE = struct.Struct(">16sBiqBbB")
_TXN_INDEX_EMPTY = b"\x00\x01\x01"
#: From this length on, the prefix has two bytes.
_LONG_VARINT = 0x80
_PARTITIONS_MAX = 10_000

_STATES = tuple(RemoteLogSegmentState)
#: By their bytes: one object for all events of a partition. Replaced when too large; a race loses at most an entry.
_partitions: dict[bytes, TopicIdPartition] = {}


def decode_usual(data: bytes) -> RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | None:
    """Return the event in `data`, or None unless it has the usual form.

    Raises ValueError for impossible offsets.
    """
    frame = data[:3]
    if len(data) < 4 or not 1 < data[3] < _LONG_VARINT:
        return None
    at = 3 + data[3] + _AFTER_NAME.size
    size = len(data) - at
    if frame == _UPDATE_FRAME and size == _UPDATE.size:
        return _update(data, at)
    if frame == _SEGMENT_FRAME and size in (_SEGMENT.size, _SEGMENT.size + len(_TXN_INDEX_EMPTY)):
        return _segment(data, at, size > _SEGMENT.size)
    return None


def _segment(data: bytes, at: int, tagged: bool) -> RemoteLogSegmentMetadata | None:
    (
        segment_id,
        id_tags,
        start,
        end,
        broker,
        max_timestamp,
        event_timestamp,
        epochs,
        epoch,
        epoch_start,
        epoch_tags,
        size,
        custom,
        state,
        tags,
    ) = _SEGMENT.unpack_from(data, at)
    if id_tags or epochs != 2 or epoch_tags or custom or not 0 <= state < len(_STATES) or tags != tagged:
        return None
    if tagged and data[-3:] != _TXN_INDEX_EMPTY:
        return None
    partition = _partition(data[3:at])
    if partition is None:
        return None
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, UUID(bytes=segment_id)),
        start,
        end,
        max_timestamp,
        broker,
        event_timestamp,
        size,
        {epoch: epoch_start},
        _STATES[state],
        None,
        tagged,
    )


def _update(data: bytes, at: int) -> RemoteLogSegmentMetadataUpdate | None:
    segment_id, id_tags, broker, event_timestamp, custom, state, tags = _UPDATE.unpack_from(data, at)
    if id_tags or custom or tags or not 0 <= state < len(_STATES):
        return None
    partition = _partition(data[3:at])
    if partition is None:
        return None
    return RemoteLogSegmentMetadataUpdate(
        RemoteLogSegmentId(partition, UUID(bytes=segment_id)), event_timestamp, None, _STATES[state], broker
    )


def _partition(data: bytes) -> TopicIdPartition | None:
    global _partitions
    found = _partitions.get(data)
    if found is None:
        topic_id, number, tags = _AFTER_NAME.unpack_from(data, data[0])
        if tags:
            return None
        try:
            name = data[1 : data[0]].decode()
        except UnicodeDecodeError:
            return None
        found = TopicIdPartition(UUID(bytes=topic_id), name, number)
        if len(_partitions) >= _PARTITIONS_MAX:
            _partitions = {}
        _partitions[data] = found
    return found
