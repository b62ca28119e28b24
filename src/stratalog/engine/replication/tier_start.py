"""Start a follower after records that its leader has only in the remote tier.

Their leader epochs and producers are read from the remote tier, and the records stay there. Source: `TierStateMachine`
of Kafka 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.errors import RetriableRemoteStorageError, StratalogError
from stratalog.log import RemoteHistory
from stratalog.log.format import producer_snapshot
from stratalog.wire.client import EARLIEST_LOCAL_OFFSET, EARLIEST_OFFSET

if TYPE_CHECKING:
    from stratalog.engine.partition import Partition
    from stratalog.engine.replication.leader_questions import LeaderQuestions


def lacks_history(partition: Partition, leader_log_start: int) -> bool:
    """Return whether an empty log lacks the epochs of earlier records of its leader.

    This happens after a crash while they were being read, and after a truncation below the first local segment.
    """
    log = partition.log
    return (
        partition.remote is not None
        and 0 <= leader_log_start < log.log_end_offset
        and log.local_log_start_offset == log.log_end_offset
        and not log.leader_epochs.entries
    )


def history_from_tier(partition: Partition, leader: LeaderQuestions, leader_log_start: int) -> RemoteHistory:
    """Return what a log needs that begins at or a little after its leader's local log start.

    Blocks on the leader and on the store. `leader_log_start` is -1 if the leader did not report it. Raises
    UnreachableError, RemoteStorageError.
    """
    remote = partition.remote
    if remote is None:
        raise RetriableRemoteStorageError(
            f"{partition.topic}-{partition.partition} is in its leader's remote tier, and is not tiered by this broker"
        )
    counts = remote.counts.topic(partition.topic)
    counts.aux_state_requests += 1
    try:
        if leader_log_start < 0:
            leader_log_start, _ = leader.offset(EARLIEST_OFFSET)
        local_start, epoch = leader.offset(EARLIEST_LOCAL_OFFSET)
        if local_start <= leader_log_start:  # everything is local there
            return RemoteHistory(
                next_offset=local_start,
                log_start_offset=local_start,
                epochs=(),
                producer_snapshot=producer_snapshot.encode([]),
            )
        last_remote = local_start - 1
        if epoch > 0:
            earlier, end = leader.end_of_epoch(epoch - 1)
            epoch = earlier if end > last_remote else epoch
        return remote.history(
            partition.topic_id_partition,
            leader_epoch=max(epoch, 0),
            offset=last_remote,
            log_start_offset=leader_log_start,
        )
    except (StratalogError, OSError):
        counts.aux_state_errors += 1
        raise
