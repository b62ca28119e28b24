"""DescribeLogDirs: partitions and free space of each log directory. Sizes are those of the local tier.

Sizes of the remote tier are in a tagged field of our own (`broker/remote_sizes.py`), and for our own client the tier
status is in another (`broker/tier_status_field.py`). Version 2 is the first with tagged fields; 3 adds an error of the
whole response, 4 the sizes of the volume, 5 whether a directory is cordoned.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stratalog.broker import tier_status_field
from stratalog.broker.remote_sizes import TAG, encode, remote_sizes
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.engine import MovingReplica, Partition
from stratalog.errors import KafkaStorageError
from stratalog.wire import Tagged

_UNKNOWN_SIZE = -1
_TAGGED_FROM = 2


@handles(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5))
async def describe_log_dirs(ctx: RequestContext, request: Any) -> Any:
    logs, workers = ctx.broker.logs, ctx.broker.workers
    partitions = await workers.run(_asked, ctx, request)
    response = await workers.run(_response, ctx, partitions)
    tiered = [partition for partition in partitions if partition.remote is not None]
    if not tiered or ctx.version < _TAGGED_FROM:
        return response
    fields = {TAG: encode(await workers.run(remote_sizes, tiered))}
    if ctx.client_id == tier_status_field.CLIENT_ID:
        fields[tier_status_field.TAG] = await workers.run(tier_status_field.encoded, logs, tiered)
    return Tagged(response, fields)


def _asked(ctx: RequestContext, request: Any) -> Sequence[Partition]:
    """Return the requested partitions. Call it on a worker thread: creating a partition holds their lock."""
    logs = ctx.broker.logs
    if request.topics is None:
        return logs.partitions()
    wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    found = (logs.get(topic, index) for topic, index in sorted(wanted))
    return [partition for partition in found if partition is not None]


def _response(ctx: RequestContext, partitions: Sequence[Partition]) -> Any:
    """Return the response. Call it on a worker thread: there may be many partitions and slow disks."""
    logs, asked = ctx.broker.logs, set(map(id, partitions))
    moves = [move for move in logs.moves.all() if id(move.partition) in asked]
    results = [_directory(ctx, path, partitions, moves) for path in logs.dirs.paths]
    return ctx.respond(error_code=0, results=results)


def _directory(ctx: RequestContext, path: Path, partitions: Iterable[Partition], moves: Iterable[MovingReplica]) -> Any:
    by_topic: dict[str, list[tuple[Partition, MovingReplica | None]]] = {}
    error_code, total, usable = 0, _UNKNOWN_SIZE, _UNKNOWN_SIZE
    try:
        if ctx.broker.logs.dirs.is_offline(path):
            raise KafkaStorageError(f"{path} is offline")
        usage = shutil.disk_usage(path)
        total, usable = usage.total, usage.free
    except (OSError, KafkaStorageError):
        error_code = KafkaStorageError.code
    else:
        for partition in partitions:
            if partition.failure is None and partition.log.directory.parent == path:
                by_topic.setdefault(partition.topic, []).append((partition, None))
        for move in moves:
            if move.destination == path:
                by_topic.setdefault(move.partition.topic, []).append((move.partition, move))
    return ctx.make(
        "DescribeLogDirsResult",
        error_code=error_code,
        log_dir=str(path),
        topics=[
            ctx.make(
                "DescribeLogDirsTopic",
                name=name,
                partitions=[
                    ctx.make(
                        "DescribeLogDirsPartition",
                        partition_index=partition.partition,
                        partition_size=partition.log.size_bytes if move is None else move.size_bytes,
                        offset_lag=0 if move is None else move.offset_lag,
                        is_future_key=move is not None,
                    )
                    for partition, move in here
                ],
            )
            for name, here in by_topic.items()
        ],
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
