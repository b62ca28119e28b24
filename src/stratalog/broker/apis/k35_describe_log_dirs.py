"""DescribeLogDirs: what lies in each log directory, and how much room is left. Sizes are those of the local tier.

Version 3 adds an error of the whole response, 4 the sizes of the volume, 5 whether a directory takes no new partitions.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.engine.partition import Partition
from stratalog.errors import KafkaStorageError

_UNKNOWN_SIZE = -1


@handles(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5))
def describe_log_dirs(ctx: RequestContext, request: Any) -> Any:
    logs = ctx.broker.logs
    if request.topics is None:
        partitions = logs.partitions()
    else:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        found = (logs.get(topic, index) for topic, index in sorted(wanted))
        partitions = [partition for partition in found if partition is not None]
    return ctx.respond(
        error_code=0,
        results=[_directory(ctx, Path(path).resolve(), partitions) for path in ctx.broker.data_dirs],
    )


def _directory(ctx: RequestContext, path: Path, partitions: Iterable[Partition]) -> Any:
    by_topic: dict[str, list[Partition]] = {}
    for partition in partitions:
        if partition.log.directory.parent == path:
            by_topic.setdefault(partition.topic, []).append(partition)
    error_code, total, usable = 0, _UNKNOWN_SIZE, _UNKNOWN_SIZE
    try:
        usage = shutil.disk_usage(path)
        total, usable = usage.total, usage.free
    except OSError:
        error_code = KafkaStorageError.code
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
                        partition_size=partition.log.size_bytes,
                        offset_lag=0,
                        is_future_key=False,
                    )
                    for partition in here
                ],
            )
            for name, here in by_topic.items()
        ],
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
