"""Deletion of one remote segment, in the order that survives a crash at every step."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteStorageManager,
    ensure_owner,
)
from stratalog.remote.tier.counters import RemoteCounts
from stratalog.util import Clock


class SegmentDeleter:
    """DELETE_SEGMENT_STARTED, the objects, DELETE_SEGMENT_FINISHED; done again from the start, it ends the same.

    `on_deleted` hears of every segment whose objects have gone (caches forget it). Thread-safe.
    """

    def __init__(
        self,
        rlmm: RemoteLogMetadataManager,
        rsm: RemoteStorageManager,
        *,
        broker_id: int,
        clock: Clock,
        counts: RemoteCounts,
        on_deleted: Callable[[RemoteLogSegmentMetadata], object] = lambda _: None,
    ) -> None:
        self._rlmm = rlmm
        self._rsm = rsm
        self._broker_id = broker_id
        self._clock = clock
        self._counts = counts
        self._on_deleted = on_deleted

    def ensure_allowed(self) -> None:
        """Raise NotOwnerError when another cluster owns the store: nothing is begun then."""
        ensure_owner(self._rsm)

    def delete(self, segment: RemoteLogSegmentMetadata) -> None:
        """Raises RemoteStorageError; the segment is then unreadable, and a later call goes on."""
        counts = self._counts.topic(segment.topic_id_partition.topic)
        counts.delete_requests += 1
        try:
            self._publish(segment, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
            self._rsm.delete_log_segment_data(segment)
            self._on_deleted(segment)
            self._publish(segment, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED)
        except Exception:
            counts.delete_errors += 1
            raise

    def _publish(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> None:
        update = RemoteLogSegmentMetadataUpdate(
            segment.segment_id, self._clock.now_ms(), segment.custom_metadata, state, self._broker_id
        )
        self._rlmm.update_remote_log_segment_metadata(update).result()
