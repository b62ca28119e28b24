"""Deletion of everything that a partition has in the remote tier, when its topic is deleted or no longer tiered.

DELETE_PARTITION_MARKED is written before the topic goes; then, as often as it takes and across restarts,
DELETE_PARTITION_STARTED, every segment, DELETE_PARTITION_FINISHED.
"""

from __future__ import annotations

from stratalog.remote.api import (
    RemoteLogMetadataManager,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from stratalog.remote.tier.deletion import SegmentDeleter
from stratalog.util import Clock


class PartitionDeletion:
    """The deletion of one partition, of which nothing is being copied or expired meanwhile."""

    def __init__(
        self,
        partition: TopicIdPartition,
        rlmm: RemoteLogMetadataManager,
        *,
        deleter: SegmentDeleter,
        broker_id: int,
        clock: Clock,
    ) -> None:
        self._partition = partition
        self._rlmm = rlmm
        self._deleter = deleter
        self._broker_id = broker_id
        self._clock = clock

    def mark(self) -> None:
        """Make the deletion certain: from here on `run` is going to be called until it succeeds."""
        self._publish(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)

    def run(self) -> int:
        """Delete all segments; return how many there were. Raises RemoteStorageError; a later call goes on."""
        self._publish(RemotePartitionDeleteState.DELETE_PARTITION_STARTED)
        segments = self._rlmm.list_remote_log_segments(self._partition)
        for segment in segments:
            self._deleter.delete(segment)
        self._publish(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
        return len(segments)

    def _publish(self, state: RemotePartitionDeleteState) -> None:
        event = RemotePartitionDeleteMetadata(self._partition, state, self._clock.now_ms(), self._broker_id)
        self._rlmm.put_remote_partition_delete_metadata(event).result()
