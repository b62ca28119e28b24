"""AlterReplicaLogDirs (34): move partitions to other log directories of this broker while they are in use.

A partition that is being moved changes its destination; moved to its current directory, it stays there. For a replica
that does not exist yet the directory is remembered: it is created there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import KafkaError, ReplicaNotAvailableError, UnknownTopicOrPartitionError


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2))
async def alter_replica_log_dirs(ctx: RequestContext, request: Any) -> Any:
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                wanted.setdefault(topic.name, {})[number] = directory.path
    return ctx.respond(
        results=[
            ctx.make(
                "AlterReplicaLogDirTopicResult",
                topic_name=topic,
                partitions=[
                    ctx.make(
                        "AlterReplicaLogDirPartitionResult",
                        partition_index=number,
                        error_code=await ctx.broker.workers.run(_move, ctx, topic, number, path),
                    )
                    for number, path in numbers.items()
                ],
            )
            for topic, numbers in wanted.items()
        ]
    )


def _move(ctx: RequestContext, topic: str, number: int, path: str) -> int:
    logs = ctx.broker.logs
    try:
        partition = logs.get(topic, number)
        if partition is None:
            logs.moves.check(topic, number, Path(path))
            logs.prefer(topic, number, Path(path))
            raise ReplicaNotAvailableError if ctx.broker.has_partition(topic, number) else UnknownTopicOrPartitionError
        logs.moves.begin(partition, Path(path))
    except KafkaError as error:
        return error.code
    return 0
