"""How far a partition's log is in the remote tier, and where the remote tier begins, along its lineage."""

from __future__ import annotations

from stratalog.remote.api import RemoteLogMetadataManager, RemoteLogSegmentMetadata, TopicIdPartition
from stratalog.remote.lineage import is_within_lineage, lineage_of
from stratalog.remote.log_view import LogView


def find_highest_remote_offset(
    rlmm: RemoteLogMetadataManager, partition: TopicIdPartition, log: LogView
) -> int:
    """The last offset that is finished remotely and belongs to the log's lineage; -1 when there is none.

    Epochs are asked from the newest on; what a former leader copied beyond the end of its epoch does not count.
    """
    for entry in reversed(log.leader_epochs.entries):
        highest = rlmm.highest_offset_for_epoch(partition, entry.epoch)
        if highest is not None:
            _, end = log.leader_epochs.end_offset_for(entry.epoch, log.log_end_offset)
            return min(highest, end - 1)
    return -1


def find_remote_start(
    rlmm: RemoteLogMetadataManager, partition: TopicIdPartition, log: LogView
) -> RemoteLogSegmentMetadata | None:
    """The first readable segment of the lineage."""
    lineage = lineage_of(log.leader_epochs.entries)
    readable = (
        segment
        for epoch in lineage
        for segment in rlmm.list_remote_log_segments(partition, epoch)
        if segment.is_readable and is_within_lineage(segment, log.log_end_offset, lineage)
    )
    return min(readable, key=lambda segment: segment.start_offset, default=None)
