"""Find the offsets where a partition's remote data begin and end along its lineage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stratalog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    begins_in_lineage,
    is_within_lineage,
    lineage_of,
)
from stratalog.remote.tier.log_view import LogView


def find_highest_remote_offset(rlmm: RemoteLogMetadataManager, partition: TopicIdPartition, log: LogView) -> int:
    """Return the last offset copied to the remote tier that belongs to the log's lineage, or -1.

    Epochs are queried from the newest on, deleted segments count. A segment that extends beyond the end of the lineage,
    as after losing the end of the log, does not count, not even the surviving part: it will be deleted like the others
    of its history, and the only copy would be lost. (Kafka counts it up to the end of its epoch.)
    """
    lineage = lineage_of(log.leader_epochs.entries)
    for entry in reversed(log.leader_epochs.entries):
        highest = rlmm.highest_offset_for_epoch(partition, entry.epoch)
        if highest is None:
            continue
        _, end = log.leader_epochs.end_offset_for(entry.epoch, log.log_end_offset)
        segment = rlmm.remote_log_segment_metadata(partition, entry.epoch, highest)
        is_vouched_for = segment is None or is_within_lineage(segment, log.log_end_offset, lineage)
        if highest < end and is_vouched_for:
            return highest
        return max((each.end_offset for each in _of_lineage(rlmm, partition, log, lineage)), default=-1)
    return -1


def find_remote_start(
    rlmm: RemoteLogMetadataManager, partition: TopicIdPartition, log: LogView
) -> RemoteLogSegmentMetadata | None:
    """Return the first readable segment whose first offset is in the lineage.

    Its start is readable, whatever follows it.
    """
    lineage = lineage_of(log.leader_epochs.entries)
    readable = (
        segment
        for epoch in lineage
        for segment in rlmm.list_remote_log_segments(partition, epoch)
        if segment.is_readable and begins_in_lineage(segment, log.log_end_offset, lineage)
    )
    return min(readable, key=lambda segment: segment.start_offset, default=None)


def _of_lineage(
    rlmm: RemoteLogMetadataManager, partition: TopicIdPartition, log: LogView, lineage: Mapping[int, int]
) -> Iterator[RemoteLogSegmentMetadata]:
    for epoch in lineage:
        for segment in rlmm.list_remote_log_segments(partition, epoch):
            if segment.is_readable and is_within_lineage(segment, log.log_end_offset, lineage):
                yield segment
