"""Encode and decode the events in `__remote_log_metadata`: Kafka's messages in Kafka's frame.

    frame    frame version (unsigned varint, 1), api key (unsigned varint), version (unsigned varint, 0), message
    messages RemoteLogSegmentMetadataRecord (0), RemoteLogSegmentMetadataUpdateRecord (1),
             RemotePartitionDeleteMetadataRecord (2); all of their versions are flexible

A segment's size is an int32 in Kafka's schema. A larger one is clamped to 2^31 - 1 there, and the true size is kept in
a custom tagged field (`TRUE_SIZE_TAG`), which Kafka skips. `docs/formats/remote_log_metadata.md` has the layout with an
example.
"""

from __future__ import annotations

import dataclasses
import logging
from types import SimpleNamespace
from typing import Any

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
from stratalog.util import encode_unsigned
from stratalog.wire import (
    NULLABLE_BLOB,
    NUM8,
    NUM32,
    NUM64,
    STRING,
    UUID_BYTES,
    FieldReader,
    Form,
    TaggedForm,
    converted,
    encoded,
    ended,
    mapping,
    struct,
)

logger = logging.getLogger(__name__)

FRAME_VERSION = 1
MESSAGE_VERSION = 0

#: Custom tag: int64, the size of a segment that exceeds Kafka's int32. Far from the tags that Kafka assigns.
TRUE_SIZE_TAG = 10_000


def encode(event: RemoteLogMetadata) -> bytes:
    """Return the bytes of an event, as Kafka's `RemoteLogMetadataSerde` writes them."""
    key, form = _MESSAGES[type(event)]
    frame = encode_unsigned(FRAME_VERSION) + encode_unsigned(key) + encode_unsigned(MESSAGE_VERSION)
    return frame + encoded(form, event)


def decode(data: bytes) -> RemoteLogMetadata:
    """Return the event in `data`. CorruptRecordError names what is wrong and where."""
    try:
        usual = decode_usual(data)
    except ValueError:
        usual = None  # to be named below
    return decode_plainly(data) if usual is None else usual


def decode_plainly(data: bytes) -> RemoteLogMetadata:
    """Decode field by field, for all forms of an event."""
    reader = FieldReader(data, "remote log metadata", flexible=True)
    frame_version, key, version = reader.unsigned(), reader.unsigned(), reader.unsigned()
    if frame_version != FRAME_VERSION:
        raise CorruptRecordError(f"remote log metadata: frame version {frame_version}, expected {FRAME_VERSION}")
    form = _FORMS.get(key)
    if form is None:
        raise CorruptRecordError(f"remote log metadata: api key {key} is unknown")
    if version != MESSAGE_VERSION:
        raise CorruptRecordError(f"remote log metadata: version {version} of api key {key} is unknown")
    try:
        event: RemoteLogMetadata = reader.whole(form.read)
    except ValueError as error:  # values that no segment can have
        raise CorruptRecordError(f"remote log metadata, api key {key}: {error}") from error
    return event


# --- fields ---------------------------------------------------------------------------------------------------------


def _clamped(event: RemoteLogSegmentMetadata) -> Any:
    """Return the event, or for a size that Kafka's field has no room for its fields with that and the true size."""
    size = event.segment_size_bytes
    if size <= INT32_MAX:
        return event
    logger.warning(
        "%s has %d bytes; its metadata have %d for readers without larger sizes", event.segment_id, size, INT32_MAX
    )
    fields = {each.name: getattr(event, each.name) for each in dataclasses.fields(event)}
    return SimpleNamespace(**fields | {"segment_size_bytes": INT32_MAX, "true_size": size})


def _segment(*, segment_size_bytes: int, true_size: int | None, **fields: Any) -> RemoteLogSegmentMetadata:
    size = segment_size_bytes if true_size is None else true_size
    return RemoteLogSegmentMetadata(segment_size_bytes=size, **fields)


_PARTITION = struct(TopicIdPartition, topic=STRING, topic_id=UUID_BYTES, partition=NUM32)
_SEGMENT_ID = struct(RemoteLogSegmentId, topic_id_partition=_PARTITION, id=UUID_BYTES)
_CUSTOM: Form[CustomMetadata | None] = converted(
    NULLABLE_BLOB,
    lambda custom: None if custom is None else custom.value,
    lambda value: None if value is None else CustomMetadata(value),
)
_STATE = converted(NUM8, int, RemoteLogSegmentState)
_SEGMENT: Form[Any] = struct(
    _segment,
    segment_id=_SEGMENT_ID,
    start_offset=NUM64,
    end_offset=NUM64,
    broker_id=NUM32,
    max_timestamp_ms=NUM64,
    event_timestamp_ms=NUM64,
    segment_leader_epochs=mapping(NUM32, ended(NUM64)),
    segment_size_bytes=NUM32,
    custom_metadata=_CUSTOM,
    state=_STATE,
    txn_index_empty=TaggedForm(0, converted(NUM8, int, bool), False),
    true_size=TaggedForm(TRUE_SIZE_TAG, NUM64, None),
)
_UPDATE = struct(
    RemoteLogSegmentMetadataUpdate,
    segment_id=_SEGMENT_ID,
    broker_id=NUM32,
    event_timestamp_ms=NUM64,
    custom_metadata=_CUSTOM,
    state=_STATE,
)
_PARTITION_DELETE = struct(
    RemotePartitionDeleteMetadata,
    topic_id_partition=_PARTITION,
    broker_id=NUM32,
    event_timestamp_ms=NUM64,
    state=converted(NUM8, int, RemotePartitionDeleteState),
)
#: Api key and form of each message.
_MESSAGES: dict[type, tuple[int, Form[Any]]] = {
    RemoteLogSegmentMetadata: (0, converted(_SEGMENT, _clamped, lambda event: event)),
    RemoteLogSegmentMetadataUpdate: (1, _UPDATE),
    RemotePartitionDeleteMetadata: (2, _PARTITION_DELETE),
}
_FORMS = dict(_MESSAGES.values())
