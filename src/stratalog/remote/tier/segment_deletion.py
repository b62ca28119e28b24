"""Delete one remote segment, in an order that survives a crash at every step."""

from __future__ import annotations

from stratalog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState
from stratalog.remote.tier.services import TierServices


def delete_segment(services: TierServices, segment: RemoteLogSegmentMetadata) -> None:
    """Write DELETE_SEGMENT_STARTED, delete the objects, write DELETE_SEGMENT_FINISHED. Repeating it is harmless.

    Raises RemoteStorageError; the segment is then unreadable, and a later call resumes.
    """
    counts = services.counts.topic(segment.topic_id_partition.topic)
    counts.delete_requests += 1
    try:
        _publish(services, segment, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
        services.rsm.delete_log_segment_data(segment)
        services.on_segment_deleted(segment)
        _publish(services, segment, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
    except Exception:
        counts.delete_errors += 1
        raise


def _publish(services: TierServices, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> None:
    update = RemoteLogSegmentMetadataUpdate(
        segment.segment_id, services.clock.now_ms(), segment.custom_metadata, state, services.broker_id
    )
    services.rlmm.update_remote_log_segment_metadata(update).result()
