"""Topics and partitions as the page shows them: sizes in both tiers, how far retention has got, and what keeps it."""

from __future__ import annotations

from typing import Any

from stratalog.broker import BrokerServices
from stratalog.engine import Partition
from stratalog.engine.tiering import tier_statuses
from stratalog.log.retention import is_tiered
from stratalog.remote.tier import TierStatus


def overview(broker: BrokerServices) -> dict[str, Any]:
    """Return the whole broker, as JSON has it. For threads other than the loop's."""
    tiers = {(status.topic, status.partition): status for status in tier_statuses(broker.logs)}
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for partition in broker.logs.partitions():
        found = _partition(partition, tiers.get((partition.topic, partition.partition)))
        by_topic.setdefault(partition.topic, []).append(found)
    return {
        "clusterId": broker.cluster_id,
        "nodeId": broker.node_id,
        "atMs": broker.clock.now_ms(),
        "offlinePartitions": broker.logs.offline_count(),
        "offlineDirectories": {str(path): why for path, why in broker.logs.dirs.offline.items()},
        "topics": [_topic(broker, name, partitions) for name, partitions in sorted(by_topic.items())],
    }


def _topic(broker: BrokerServices, name: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    config = broker.logs.partitions(name)[0].log.config if broker.logs.partitions(name) else None
    retention: dict[str, Any] = {}
    if config is not None:
        retention = {
            "policy": ",".join(sorted(config.cleanup_policy)),
            "tiered": is_tiered(config),
            "retentionMs": config.retention_ms,
            "retentionBytes": config.retention_bytes,
            "localRetentionMs": config.effective_local_retention_ms,
            "localRetentionBytes": config.effective_local_retention_bytes,
        }
    return {
        "name": name,
        "internal": name.startswith("__"),
        **retention,
        "localBytes": sum(partition["localBytes"] for partition in partitions),
        "remoteBytes": sum(partition["remoteBytes"] for partition in partitions),
        "lagBytes": sum(partition["lagBytes"] for partition in partitions),
        "isFailing": any(partition["isFailing"] for partition in partitions),
        "partitions": partitions,
    }


def _partition(partition: Partition, tier: TierStatus | None) -> dict[str, Any]:
    log = partition.log
    return {
        "partition": partition.partition,
        "logStartOffset": log.log_start_offset,
        "localLogStartOffset": log.local_log_start_offset,
        "highWatermark": log.high_watermark,
        "logEndOffset": log.log_end_offset,
        "segments": len(log.segments),
        "localBytes": log.size_bytes,
        "remoteBytes": 0 if tier is None else tier.remote_bytes,
        "lagBytes": 0 if tier is None else tier.lag_bytes,
        "lagSegments": 0 if tier is None else tier.lag_segments,
        "reason": None if tier is None else tier.reason.value,
        "text": None if tier is None else tier.text,
        "isFailing": tier is not None and tier.is_failing,
        "failures": [] if tier is None else [f"{one.task}, {one.times} times: {one.error}" for one in tier.failures],
    }
