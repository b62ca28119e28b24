"""Remote data that a replica needs to begin after the remote tier (Kafka's TierStateMachine.buildRemoteLogAuxState)."""

from __future__ import annotations

import logging

from stratalog.errors import (
    CorruptCheckpointError,
    CorruptSnapshotError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from stratalog.log import RemoteHistory
from stratalog.log.format import decode_epochs, producer_snapshot
from stratalog.remote.api import (
    IndexType,
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)

logger = logging.getLogger(__name__)


def read_remote_history(
    rlmm: RemoteLogMetadataManager,
    rsm: RemoteStorageManager,
    partition: TopicIdPartition,
    *,
    leader_epoch: int,
    offset: int,
    log_start_offset: int,
) -> RemoteHistory:
    """Return leader epochs and producers at the end of the remote segment with `offset` of `leader_epoch`.

    Blocks on the store. Raises RetriableRemoteStorageError while no such segment is known here, and RemoteStorageError.
    """
    segment = rlmm.remote_log_segment_metadata(partition, leader_epoch, offset)
    if segment is None:
        raise RetriableRemoteStorageError(
            f"{partition}: no remote segment with offset {offset} of leader epoch {leader_epoch} is known to this"
            " broker yet"
        )
    next_offset = segment.end_offset + 1
    try:
        epochs = decode_epochs(rsm.fetch_index(segment, IndexType.LEADER_EPOCH), f"leader epochs of {partition}")
        snapshot = _producer_snapshot(rsm, segment)
        producer_snapshot.decode(snapshot, f"producer snapshot of {partition}")
    except (CorruptCheckpointError, CorruptSnapshotError) as error:
        raise RemoteStorageError(f"{segment.segment_id}: {error}") from error
    known = [entry for entry in epochs if entry.start_offset < next_offset]
    if not known:
        raise RemoteStorageError(f"{segment.segment_id}: its leader epochs do not include offset {offset}")
    return RemoteHistory(
        next_offset=next_offset,
        log_start_offset=log_start_offset,
        epochs=known,
        producer_snapshot=snapshot,
    )


def _producer_snapshot(rsm: RemoteStorageManager, segment: RemoteLogSegmentMetadata) -> bytes:
    try:
        return rsm.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)
    except RemoteResourceNotFoundError:
        logger.warning("%s has no producer snapshot: the producers of its records are unknown", segment.segment_id)
        return producer_snapshot.encode([])
