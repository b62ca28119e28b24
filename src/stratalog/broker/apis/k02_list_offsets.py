"""ListOffsets (2): offsets by time, or special ones.

v1 to v11. v2: isolation level. v4: leader epochs. v6: flexible. Special values: -1 latest, -2 earliest, v7 -3 the
record with the largest timestamp (KIP-734), v8 -4 earliest local (KIP-405), v9 -5 latest tiered (KIP-1005), v11 -6
earliest pending upload (KIP-1023). A search that has to read the remote tier runs on the threads of its readers,
concurrently for several partitions; it ends with REQUEST_TIMED_OUT after `remote.list.offsets.request.timeout.ms`, or
from v10 on the request's timeout (KIP-1075).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import Any, NamedTuple

from stratalog.broker.cluster_membership import not_here
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.engine import Partition
from stratalog.errors import (
    InvalidRequestError,
    KafkaError,
    LeaderNotAvailableError,
    OffsetNotAvailableError,
    RemoteStorageError,
    UnknownServerError,
    UnsupportedVersionError,
    wire_code,
)
from stratalog.log.format import Isolation

logger = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)

#: First version of each special value.
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
#: `replica_id` of consumers, and of tools that compare replicas: any of them answers these with the end of its own log.
_CONSUMER, _DEBUGGER = -1, -2
#: First version whose clients know OFFSET_NOT_AVAILABLE.
_NOT_AVAILABLE_FROM = 5
#: Partitions that are looked up at once: others have their turn before the next ones.
_PIECE = 200


class _Found(NamedTuple):
    timestamp_ms: int = -1
    offset: int = -1
    leader_epoch: int = -1


@handles(ApiKey.LIST_OFFSETS, versions=(1, 11), waits=True)
async def list_offsets(ctx: RequestContext, request: Any) -> Any:
    level = getattr(request, "isolation_level", 0)
    if level not in (0, 1):
        return _refused(ctx, request)
    isolation = Isolation.TXN_COMMITTED if level == 1 else Isolation.HIGH_WATERMARK
    if request.replica_id != _CONSUMER:  # a follower needs the end of the log
        isolation = Isolation.LOG_END
    asked = Counter((topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions)
    timeout_ms = _timeout_ms(ctx, request)
    topics: dict[str, dict[int, Any]] = {}
    for topic in request.topics:
        if topic.partitions:
            entries = topics.setdefault(topic.name, {})
            entries.update((entry.partition_index, entry) for entry in topic.partitions)
    responses = []
    for name, entries in topics.items():
        wanted, partitions = list(entries.items()), []
        for at in range(0, len(wanted), _PIECE):
            answers = (
                _answer(
                    ctx,
                    name,
                    entry,
                    isolation,
                    timeout_ms,
                    is_double=asked[name, index] > 1,
                    of_leader=request.replica_id != _DEBUGGER,
                )
                for index, entry in wanted[at : at + _PIECE]
            )
            partitions += await asyncio.gather(*answers)
        responses.append(ctx.make("ListOffsetsTopicResponse", name=name, partitions=partitions))
    return ctx.respond(topics=responses)


def _refused(ctx: RequestContext, request: Any) -> Any:
    """Respond to an unknown isolation level."""
    return ctx.respond(
        topics=[
            ctx.make(
                "ListOffsetsTopicResponse",
                name=topic.name,
                partitions=[_partition(ctx, entry, UnknownServerError.code, _Found()) for entry in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _timeout_ms(ctx: RequestContext, request: Any) -> int:
    """Return the time limit of a search of the remote tier."""
    asked = getattr(request, "timeout", None)
    asked_ms = 0 if asked is None else int(asked.total_seconds() * 1000)
    return asked_ms if asked_ms > 0 else int(ctx.broker.config["remote.list.offsets.request.timeout.ms"])


async def _answer(
    ctx: RequestContext,
    topic: str,
    entry: Any,
    isolation: Isolation,
    timeout_ms: int,
    *,
    is_double: bool,
    of_leader: bool,
) -> Any:
    code, found = 0, _Found()
    try:
        if is_double:
            raise InvalidRequestError(f"{topic}-{entry.partition_index} is requested twice")
        found = await _find(ctx, topic, entry, isolation, timeout_ms, of_leader=of_leader)
    except (KafkaError, RemoteStorageError, OSError) as error:
        if not isinstance(error, KafkaError):
            logger.warning("%s-%d: %s", topic, entry.partition_index, error)
        code = wire_code(error)
    return _partition(ctx, entry, code, found)


def _partition(ctx: RequestContext, entry: Any, code: int, found: _Found) -> Any:
    return ctx.make(
        "ListOffsetsPartitionResponse",
        partition_index=entry.partition_index,
        error_code=code,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


async def _find(
    ctx: RequestContext, topic: str, entry: Any, isolation: Isolation, timeout_ms: int, *, of_leader: bool
) -> _Found:
    time_ms = entry.timestamp
    if time_ms < 0:
        since = _SINCE.get(time_ms)
        if since is None or ctx.version < since:
            raise UnsupportedVersionError(f"timestamp {time_ms} is invalid in ListOffsets v{ctx.version}")
    partition = ctx.broker.partition(topic, entry.partition_index)
    if partition is None:
        raise not_here(ctx.broker, topic, entry.partition_index)
    partition.check_epoch(getattr(entry, "current_leader_epoch", -1), of_leader=of_leader)
    if time_ms == LATEST and isolation is not Isolation.LOG_END and partition.is_behind_its_epoch(isolation):
        error = OffsetNotAvailableError if ctx.version >= _NOT_AVAILABLE_FROM else LeaderNotAvailableError
        raise error("a newly elected leader does not know the positions of its replicas yet")
    if time_ms >= 0:
        if not partition.is_remote(partition.log.log_start_offset):
            return _by_time(partition, time_ms, isolation)
        search = partial(_by_time, partition, time_ms, isolation)
        return await ctx.broker.remote_reads.run(search, timeout_ms)
    return _special(partition, time_ms, isolation)


def _by_time(partition: Partition, time_ms: int, isolation: Isolation) -> _Found:
    found = partition.offset_for_timestamp(time_ms)
    if found is None or found.offset >= partition.latest_offset(isolation):
        return _Found()
    return _Found(found.timestamp_ms, found.offset, found.leader_epoch)


def _special(partition: Partition, which: int, isolation: Isolation) -> _Found:
    log = partition.log
    if which == LATEST:
        latest = log.leader_epochs.latest_epoch
        return _Found(-1, partition.latest_offset(isolation), -1 if latest is None else latest)
    if which == EARLIEST:
        return _at(partition, log.log_start_offset)
    if which == MAX_TIMESTAMP:
        newest = partition.max_timestamp()
        return _Found() if newest is None else _Found(newest.timestamp_ms, newest.offset, newest.leader_epoch)
    if which == EARLIEST_LOCAL:
        return _at(partition, log.local_log_start_offset)
    tiered = log.highest_offset_in_remote_storage if partition.remote is not None else -1
    if which == LATEST_TIERED:
        return _at(partition, tiered) if tiered >= 0 else _Found()
    if partition.remote is None:
        return _Found()
    if tiered < 0 and log.local_log_start_offset > log.log_start_offset:
        return _Found()  # there are remote segments, but their end is not known yet
    return _at(partition, max(tiered + 1, log.log_start_offset))


def _at(partition: Partition, offset: int) -> _Found:
    epoch = partition.log.leader_epochs.epoch_for_offset(offset)
    return _Found(-1, offset, -1 if epoch is None else epoch)
