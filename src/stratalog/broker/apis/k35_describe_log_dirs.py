"""DescribeLogDirs: partitions and free space of each log directory. Sizes are those of the local tier.

Sizes of the remote tier are in a tagged field of our own (`broker/remote_sizes.py`), and for our own client the tier
status is in another (`broker/tier_status_field.py`). Version 2 is the first with tagged fields; 3 adds an error of the
whole response, 4 the sizes of the volume, 5 whether a directory is cordoned.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final

from stratalog.broker import tier_status_field
from stratalog.broker.remote_sizes import TAG, encode, remote_sizes
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.engine import Partition
from stratalog.errors import KafkaStorageError
from stratalog.util import encode_unsigned
from stratalog.wire import INT16, with_parts, with_tags, write_message

_UNKNOWN_SIZE: Final = -1
_TAGGED_FROM: Final = 2
#: The first version with an error code of the whole response.
_WHOLE_CODE_FROM: Final = 3
#: Bytes behind the topics of a directory by version: its total and usable bytes, and whether it is cordoned.
_BEHIND_TOPICS: Final = {1: 0, 2: 0, 3: 0, 4: 16, 5: 17}
#: A partition: index, size in bytes, lag, whether it is a future replica.
_PARTITION: Final = Struct(">iqq?")


@handles(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5))
async def describe_log_dirs(ctx: RequestContext, request: Any) -> Any:
    logs, workers = ctx.broker.logs, ctx.broker.workers
    partitions = await workers.run(_asked, ctx, request)
    response, codes = await workers.run(_response, ctx, partitions)
    tiered = [partition for partition in partitions if partition.remote is not None]
    if not tiered or ctx.version < _TAGGED_FROM:
        return ctx.respond_encoded(response, codes)
    fields = {TAG: encode(await workers.run(remote_sizes, tiered))}
    if ctx.client_id == tier_status_field.CLIENT_ID:
        fields[tier_status_field.TAG] = await workers.run(tier_status_field.encoded, logs, tiered)
    return ctx.respond_encoded(with_tags(response, fields), codes)


def _asked(ctx: RequestContext, request: Any) -> Sequence[Partition]:
    """Return the requested partitions. Call it on a worker thread: creating a partition holds their lock."""
    logs = ctx.broker.logs
    if request.topics is None:
        return logs.partitions()
    wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    found = (logs.get(topic, index) for topic, index in sorted(wanted))
    return [partition for partition in found if partition is not None]


def _response(ctx: RequestContext, partitions: Sequence[Partition]) -> tuple[bytes, Counter[int]]:
    """Return the encoded response and its error codes.

    Call it on a worker thread: there may be many partitions and slow disks.
    """
    logs, asked = ctx.broker.logs, set(map(id, partitions))
    end = b"\0" if ctx.version >= _TAGGED_FROM else b""
    found: dict[str, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for partition in partitions:
        if partition.failure is None:
            # Paths take ten times as long, and the loop waits for the interpreter.
            directory = os.path.dirname(str(partition.log.directory)) or "."  # noqa: PTH120
            found[directory][partition.topic].append(
                _PARTITION.pack(partition.partition, partition.log.size_bytes, 0, False) + end
            )
    for move in logs.moves.all():
        if id(move.partition) in asked:
            found[str(move.destination)][move.partition.topic].append(
                _PARTITION.pack(move.partition.partition, move.size_bytes, move.offset_lag, True) + end
            )
    results = [_directory(ctx, path, found[str(path)]) for path in logs.dirs.paths]
    codes = Counter([0] * (ctx.version >= _WHOLE_CODE_FROM) + [INT16.unpack_from(result)[0] for result in results])
    return ctx.parts(ctx.respond(error_code=0), results), codes


def _directory(ctx: RequestContext, path: Path, topics: Mapping[str, Sequence[bytes]]) -> bytes:
    error_code, total, usable = 0, _UNKNOWN_SIZE, _UNKNOWN_SIZE
    try:
        if ctx.broker.logs.dirs.is_offline(path):
            raise KafkaStorageError(f"{path} is offline")
        usage = shutil.disk_usage(path)
        total, usable = usage.total, usage.free
    except (OSError, KafkaStorageError):
        error_code, topics = KafkaStorageError.code, {}
    result = ctx.make(
        "DescribeLogDirsResult",
        error_code=error_code,
        log_dir=str(path),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
    topic = write_message(ctx.make("DescribeLogDirsTopic", name=""))
    is_flexible = ctx.version >= _TAGGED_FROM
    encoded = [
        with_parts(_named(name, topic, is_flexible), parts, flexible=is_flexible) for name, parts in topics.items()
    ]
    return ctx.parts(result, encoded, behind=_BEHIND_TOPICS[ctx.version])


def _named(name: str, topic: bytes, is_flexible: bool) -> bytes:
    """Return the bytes of a topic, whose first field is its name, with `name` in the place of an empty one."""
    text = name.encode()
    if is_flexible:
        return encode_unsigned(len(text) + 1) + text + topic[1:]
    return INT16.pack(len(text)) + text + topic[INT16.size :]
