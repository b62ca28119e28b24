"""Values that tests of the remote tier share."""

from __future__ import annotations

from uuid import UUID

from stratalog.remote.api.interfaces import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.util.uuids import uuid_from_base64

#: Those of the goldens.
PARTITION = TopicIdPartition(uuid_from_base64("dfcT2RzVTaa2kKZb1VMYtg"), "flights", 3)
SEGMENT_ID = RemoteLogSegmentId(PARTITION, uuid_from_base64("hB5yJqzOSDmxmNHsV7oUaw"))


def segment_id(number: int) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(PARTITION, UUID(int=number + 1000))


def segment(
    number: int,
    start: int,
    end: int,
    epochs: dict[int, int] | None = None,
    *,
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    size: int = 100,
    max_timestamp: int = 0,
    txn_index_empty: bool = True,
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=segment_id(number),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=max_timestamp,
        broker_id=1,
        event_timestamp_ms=number,
        segment_size_bytes=size,
        segment_leader_epochs=epochs or {0: start},
        state=state,
        txn_index_empty=txn_index_empty,
    )


def update(number: int, state: RemoteLogSegmentState) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(segment_id(number), 5, None, state, 1)


#: Beyond Kafka's field for a size: what it makes of their events is in the goldens.
LARGE_SEGMENTS = {
    "2^31 bytes": segment(1, 4711, 6000, {0: 4711, 2: 5000}, size=2**31, max_timestamp=1_700_000_000_123),
    "6 GiB with transactions": segment(2, 0, 99, size=6 * 2**30, txn_index_empty=False),
}
