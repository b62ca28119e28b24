"""The tier status of a broker that is not running, from its files: what was copied, and what is due at startup.

Open transactions, the quota and failures are unknown.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from stratalog.broker.metadata import STORE_FILE, MetadataStore, Topic
from stratalog.cli.tier.data_dirs import open_data_dirs
from stratalog.config import LogConfig
from stratalog.engine.tiering import status_json
from stratalog.errors import UsageError
from stratalog.inspect import DataDirSet, read_local_log
from stratalog.log import list_partitions
from stratalog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from stratalog.remote.ownership import OWNERSHIP_FILE, OwnershipFile
from stratalog.remote.tier import TaskFailure, TierFacts, TierStatus, partition_status


def from_data_dirs(directories: Sequence[Path]) -> list[dict[str, Any]]:
    """Return every tiered partition as `/api/tier-status` does. Raises UsageError for directories of another broker."""
    logs = open_data_dirs(directories)
    stores = [directory for directory in directories if (directory / STORE_FILE).is_file()]
    if logs is None or not stores:
        names = ", ".join(str(directory) for directory in directories)
        raise UsageError(f"{names}: no {STORE_FILE} in these directories; give the broker's first log directory too")
    with closing(MetadataStore.open(stores[0])) as store:
        tiered = {topic.name: topic for topic in store.topics() if _config(topic).remote_storage_enable}
    failures = _refusals(directories)
    remote = {partition: list(said.segments.values()) for found in logs.replay() for partition, said in found.items()}
    statuses = [
        _status(tiered[topic], number, path, logs, remote, failures)
        for directory in directories
        for topic, number, path in list_partitions(directory)
        if topic in tiered
    ]
    known = [status for status in statuses if status is not None]
    partitions: list[dict[str, Any]] = status_json(known)["partitions"]
    return sorted(partitions, key=lambda partition: (partition["topic"], partition["partition"]))


def _refusals(directories: Sequence[Path]) -> list[TaskFailure]:
    """Return why the broker of these directories may not copy, as far as known."""
    found = []
    for file in map(OwnershipFile, directories):
        refused = "this directory was restored without taking its bucket over" if file.is_read_only else file.refusal
        if refused is not None:
            since_ms = int((file.directory / OWNERSHIP_FILE).stat().st_mtime * 1000)
            found.append(TaskFailure("copy", 1, since_ms, refused))
    return found


def _config(topic: Topic) -> LogConfig:
    return LogConfig.from_properties(topic.configs)


def _status(
    topic: Topic,
    number: int,
    path: Path,
    logs: DataDirSet,
    remote: dict[TopicIdPartition, list[RemoteLogSegmentMetadata]],
    failures: Sequence[TaskFailure],
) -> TierStatus | None:
    identity = TopicIdPartition(topic.topic_id, topic.name, number)
    facts = logs.log_facts(identity)
    if facts is None:
        return None
    finished = [
        segment for segment in remote.get(identity, []) if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    ]
    start = facts.local_log_start_offset if facts.log_start_offset is None else facts.log_start_offset
    return partition_status(
        TierFacts(
            topic=topic.name,
            partition=number,
            config=_config(topic),
            segments=read_local_log(path).segments,
            log_start_offset=min([start, *(segment.start_offset for segment in finished)]),
            local_log_start_offset=facts.local_log_start_offset,
            last_stable_offset=facts.log_end_offset,
            high_watermark=facts.log_end_offset,
            log_end_offset=facts.log_end_offset,
            highest_remote_offset=max((segment.end_offset for segment in finished), default=-1),
            now_ms=time.time_ns() // 1_000_000,
            failures=failures,
            remote_segments=len(finished),
            remote_bytes=sum(segment.segment_size_bytes for segment in finished),
        )
    )
