"""What a replica that copies nothing has to know: how far the leader has copied (Kafka's RLMFollowerTask)."""

from __future__ import annotations

from stratalog.remote.api import RemoteLogMetadataManager, TopicIdPartition
from stratalog.remote.copied_offset import find_highest_remote_offset
from stratalog.remote.log_view import LogView


class FollowerTask:
    """Keeps the deletion guard of one partition's local log in step with the metadata."""

    def __init__(self, log: LogView, partition: TopicIdPartition, rlmm: RemoteLogMetadataManager) -> None:
        self._log = log
        self._partition = partition
        self._rlmm = rlmm

    def run(self) -> int:
        """Returns the highest offset that is finished remotely, -1 for none."""
        highest = find_highest_remote_offset(self._rlmm, self._partition, self._log)
        if highest > self._log.highest_offset_in_remote_storage:
            self._log.update_highest_offset_in_remote_storage(highest)
        return highest
