"""The remote tier: backlogs of uploads and deletions, cache, quotas, and failures with remedies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stratalog.engine.tiering import tier_statuses
from stratalog.errors import StratalogError
from stratalog.remote.tier import MEANING, RemoteLogManager, TierStatus
from stratalog.web.declarations import Console
from stratalog.web.fields import choice, whole, words
from stratalog.web.viewer import ConsoleViewer

_PAGE_SIZE: Final = 50
FIELDS = (
    words("q", longest=249, help="Part of the topic's name."),
    choice("show", ("all", "waiting", "failing")),
    whole("page", 1, 1, 100_000),
)
#: Remedies for a failing task.
_PASSES: Final = (
    "This error may be temporary, and the broker retries. If it persists: is the store reachable from this machine "
    "(network, DNS, proxy), and does it answer in time? stratalog doctor --remote URL checks it from here."
)
_STAYS: Final = (
    "This error is permanent. Compare bucket, endpoint, credentials and their rights with the settings "
    "stratalog.remote.*; changed credentials are used at the next attempt."
)
_DAMAGED: Final = "Check the segment with stratalog fsck, and the bucket with stratalog tier audit."


def view(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return the state of the tier and its partitions: failing ones first, then the longest waits."""
    broker = viewer.broker
    remote = broker.logs.remote
    seen = set(viewer.topics())
    everything = [each for each in tier_statuses(broker.logs) if each.topic in seen]
    query, show = values["q"].lower(), values["show"]
    chosen = [
        each
        for each in everything
        if query in each.topic.lower()
        and (show == "all" or (show == "failing" and each.is_failing) or (show == "waiting" and each.lag_segments))
    ]
    chosen.sort(key=lambda each: (not each.is_failing, -each.lag_bytes, each.topic, each.partition))
    pages = max((len(chosen) + _PAGE_SIZE - 1) // _PAGE_SIZE, 1)
    page = min(values["page"], pages)
    reasons: dict[str, int] = {}
    for each in everything:
        reasons[each.reason.value] = reasons.get(each.reason.value, 0) + 1
    deletes = {}
    if remote is not None:
        gauges = remote.gauges()
        deletes = {(i.topic, i.partition): (g.delete_lag_segments, g.delete_lag_bytes) for i, g in gauges.items()}
    return {
        "isTiered": remote is not None,
        "store": _store(viewer) if viewer.may_cluster() else None,
        "partitions": len(everything),
        "failing": sum(each.is_failing for each in everything),
        "uploadSegments": sum(each.lag_segments for each in everything),
        "uploadBytes": sum(each.lag_bytes for each in everything),
        "deleteSegments": sum(deletes.get((each.topic, each.partition), (0, 0))[0] for each in everything),
        "deleteBytes": sum(deletes.get((each.topic, each.partition), (0, 0))[1] for each in everything),
        "localBytes": sum(each.local_bytes for each in everything),
        "remoteBytes": sum(each.remote_bytes for each in everything),
        "reasons": [
            {"reason": reason, "meaning": _meaning(reason), "partitions": count}
            for reason, count in sorted(reasons.items(), key=lambda entry: -entry[1])
        ],
        "unreachableSinceMs": None if remote is None else remote.health.unreachable_since_ms,
        "cache": None if remote is None else _cache(remote),
        "quotas": [] if remote is None else _quotas(remote),
        "pools": [] if remote is None else _pools(remote),
        "found": len(chosen),
        "pageAt": page,
        "pages": pages,
        "rows": [
            _row(viewer, each, deletes.get((each.topic, each.partition), (0, 0)))
            for each in chosen[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
        ],
    }


def _meaning(reason: str) -> str:
    return next((text for each, text in MEANING.items() if each.value == reason), "")


def _store(viewer: ConsoleViewer) -> str:
    config = viewer.broker.config
    plugin = config["remote.log.storage.manager.class.name"]
    return str(plugin or config["stratalog.remote.url"] or "the directory remote-store in the first log directory")


def _cache(remote: RemoteLogManager) -> dict[str, Any]:
    return {"bytes": remote.index_cache.size_bytes, "capacityBytes": remote.index_cache.capacity_bytes}


def _quotas(remote: RemoteLogManager) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "key": f"remote.log.manager.{name}.max.bytes.per.second",
            "bytesPerSecond": quota.bytes_per_second,
            "isLimited": quota.bytes_per_second < 2**62,
            "throttledTimes": quota.throttled.times,
            "throttledMs": quota.throttled.total_ms,
        }
        for name, quota in (("copy", remote.limits.copy_quota), ("fetch", remote.limits.fetch_quota))
    ]


def _pools(remote: RemoteLogManager) -> list[dict[str, Any]]:
    named = (("copies", remote.limits.copiers), ("deletions", remote.limits.expirers), ("reads", remote.limits.readers))
    return [{"name": name, "threads": pool.size, "busy": pool.busy, "pending": pool.pending} for name, pool in named]


def _row(viewer: ConsoleViewer, status: TierStatus, deletes: tuple[int, int]) -> dict[str, Any]:
    return {
        "topic": status.topic,
        "partition": status.partition,
        "reason": status.reason.value,
        "text": status.text,
        "isFailing": status.is_failing,
        "localBytes": status.local_bytes,
        "remoteBytes": status.remote_bytes,
        "remoteSegments": status.remote_segments,
        "uploadSegments": status.lag_segments,
        "uploadBytes": status.lag_bytes,
        "deleteSegments": deletes[0],
        "deleteBytes": deletes[1],
        "failures": [
            {
                "task": failure.task,
                "times": failure.times,
                "sinceMs": failure.since_ms,
                "error": failure.error,
                "remedy": _remedy(viewer, status, failure.task),
            }
            for failure in status.failures
        ],
    }


def _remedy(viewer: ConsoleViewer, status: TierStatus, task: str) -> str:
    remote = viewer.broker.logs.remote
    partition = viewer.broker.logs.get(status.topic, status.partition)
    if remote is None or partition is None:
        return _PASSES
    trouble = remote.health.troubles.get((partition.topic_id_partition, task))
    if trouble is None or trouble.is_retriable:
        return _PASSES
    try:
        stopped = remote.copying_stopped(partition.topic_id_partition)
    except StratalogError:
        stopped = False
    return _DAMAGED if stopped else _STAYS
