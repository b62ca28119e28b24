"""Start a follower after records that its leader has in the remote tier.

Their leader epochs and producers are read from the remote tier, and the records stay there. A follower starts at its
leader's local log start. With `follower.fetch.last.tiered.offset.enable` an empty one starts after the last record of
the remote tier (KIP-1023). Source: `TierStateMachine` and `AbstractFetcherThread` of Kafka 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.errors import RetriableRemoteStorageError, StratalogError
from stratalog.log import RemoteHistory
from stratalog.log.format import producer_snapshot
from stratalog.wire.client import EARLIEST_LOCAL_OFFSET, EARLIEST_OFFSET, EARLIEST_PENDING_UPLOAD_OFFSET

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


def may_skip_tiered(partition: Partition, leader_end: int) -> bool:
    """Return whether a log may start after the last record of the remote tier: if it is empty, and not compacted."""
    log = partition.log
    return partition.remote is not None and not log.config.compacted and log.log_end_offset == 0 and leader_end != 0


def history_from_tier(
    partition: Partition, leader: LeaderQuestions, leader_log_start: int, *, skip_tiered: bool = False
) -> RemoteHistory:
    """Return what a log needs that begins at or a little after its leader's local log start.

    `skip_tiered`: it begins after the last record of the remote tier instead. Blocks on the leader and on the store.
    `leader_log_start` is -1 if the leader did not report it. Raises UnreachableError, RemoteStorageError.
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
        if skip_tiered:
            start, epoch = _earliest_pending_upload(leader, leader_log_start)
        else:
            start, epoch = leader.offset(EARLIEST_LOCAL_OFFSET)
        if start <= leader_log_start:  # everything is local there
            return RemoteHistory(
                next_offset=start,
                log_start_offset=start,
                epochs=(),
                producer_snapshot=producer_snapshot.encode([]),
            )
        last_remote = start - 1
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


def _earliest_pending_upload(leader: LeaderQuestions, leader_log_start: int) -> tuple[int, int]:
    """Return the offset after the last record of the remote tier, and its leader epoch.

    Raises RetriableRemoteStorageError while a new leader does not know it.
    """
    pending, epoch = leader.offset(EARLIEST_PENDING_UPLOAD_OFFSET)
    if pending >= 0:
        return pending, epoch
    local_start, epoch = leader.offset(EARLIEST_LOCAL_OFFSET)
    if local_start == leader_log_start:  # nothing has been uploaded
        return local_start, epoch
    raise RetriableRemoteStorageError("the leader does not know yet where the remote tier ends")
