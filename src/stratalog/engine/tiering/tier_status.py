"""Tier status of the partitions of a broker.

Collects facts of the log and its tasks for `remote.tier.status`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stratalog.engine.log_manager import LogManager
from stratalog.engine.partition import Partition
from stratalog.errors import KafkaStorageError, StratalogError
from stratalog.remote.tier import TaskFailure, TierFacts, TierStatus, partition_status


def tier_statuses(logs: LogManager, topic: str | None = None) -> list[TierStatus]:
    """Return the status of every tiered partition, or of all partitions of one topic. Does not query the store."""
    found = []
    for partition in logs.partitions(topic):
        if topic is None and partition.remote is None and not partition.log.config.remote_storage_enable:
            continue
        try:
            found.append(partition_status(_facts(partition, logs.clock.now_ms())))
        except KafkaStorageError:
            continue  # its disk has just failed
    return found


def _facts(partition: Partition, now_ms: int) -> TierFacts:
    log, remote = partition.log, partition.remote
    step = None
    segments, size = 0, 0
    failures: list[TaskFailure] = []
    is_stopped = False
    if remote is not None:
        identity = partition.topic_id_partition
        step = remote.copy_step(identity)
        failures = [
            TaskFailure(task, trouble.times, trouble.since_ms, trouble.message)
            for (whose, task), trouble in remote.health.troubles.items()
            if whose == identity
        ]
        try:
            is_stopped = remote.copying_stopped(identity)
            sizes = remote.sizes(identity)
            segments, size = sizes.readable_segments, sizes.readable_bytes
        except StratalogError as error:  # its metadata is still being read
            if not failures:
                failures = [TaskFailure("metadata", 1, now_ms, str(error))]
    return TierFacts(
        topic=partition.topic,
        partition=partition.partition,
        config=log.config,
        segments=log.segments,
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        last_stable_offset=log.last_stable_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        highest_remote_offset=log.highest_offset_in_remote_storage,
        now_ms=now_ms,
        is_available=remote is not None,
        is_leader=partition.leader_epoch >= 0,
        is_stopped=is_stopped,
        step=step,
        failures=failures,
        remote_segments=segments,
        remote_bytes=size,
    )


def status_json(statuses: Iterable[TierStatus]) -> dict[str, Any]:
    """Return statuses for JSON: {"failing": count, "partitions": [...]}; described in docs/metrics.md."""
    listed = list(statuses)
    return {
        "failing": sum(status.is_failing for status in listed),
        "partitions": [_as_json(status) for status in listed],
    }


def _as_json(status: TierStatus) -> dict[str, Any]:
    return {
        "topic": status.topic,
        "partition": status.partition,
        "reason": status.reason.value,
        "text": status.text,
        "isFailing": status.is_failing,
        "logStartOffset": status.log_start_offset,
        "localLogStartOffset": status.local_log_start_offset,
        "highestRemoteOffset": status.highest_remote_offset,
        "lastStableOffset": status.last_stable_offset,
        "highWatermark": status.high_watermark,
        "logEndOffset": status.log_end_offset,
        "lagSegments": status.lag_segments,
        "lagBytes": status.lag_bytes,
        "localSegments": status.local_segments,
        "localBytes": status.local_bytes,
        "remoteSegments": status.remote_segments,
        "remoteBytes": status.remote_bytes,
        "failures": [
            {
                "task": failure.task,
                "times": failure.times,
                "sinceMs": failure.since_ms,
                "error": failure.error,
            }
            for failure in status.failures
        ],
        "segments": [
            {
                "baseOffset": segment.base_offset,
                "lastOffset": segment.last_offset,
                "bytes": segment.size_bytes,
                "reason": segment.reason.value,
            }
            for segment in status.segments
        ],
    }
