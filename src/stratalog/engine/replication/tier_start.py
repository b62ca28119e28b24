"""A follower whose leader has the records that it asks for in the remote tier only: it begins behind them.

What it must know of them (leader epochs, producers) comes from the remote tier, and the records stay there. Source:
`TierStateMachine` of Kafka 4.4.
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
    """Return whether an empty log does not know who wrote what its leader has before it.

    So it is after a crash while the history was taken in, and after a cut below the first local segment.
    """
    log = partition.log
    return (
        partition.remote is not None
        and 0 <= leader_log_start < log.log_end_offset
        and log.local_log_start_offset == log.log_end_offset
        and not log.leader_epochs.entries
    )


def history_from_tier(partition: Partition, leader: LeaderQuestions, leader_log_start: int) -> RemoteHistory:
    """Return what a log has to know that begins where its leader's local log does, or a little behind.

    Blocks on the leader and on the store. `leader_log_start` is -1 where the leader did not tell. Raises
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
