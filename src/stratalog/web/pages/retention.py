"""The retention of a partition on a time line: when and why each segment is deleted, and with which other settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stratalog.config import LogConfig
from stratalog.engine import Partition
from stratalog.errors import InvalidConfigError
from stratalog.inspect import LocalSegment
from stratalog.jobs.retention import Fate, Rhythm, forecast_local, forecast_remote
from stratalog.log.retention import RetentionLimits
from stratalog.remote.api import RemoteLogSegmentMetadata, lineage_of
from stratalog.remote.tier import RetentionFacts
from stratalog.web.declarations import Console, NotThatValueError
from stratalog.web.fields import whole
from stratalog.web.viewer import ConsoleViewer

_TABLE_MAX: Final = 60
_COLUMNS: Final = 120
_KEYS: Final = {
    "retention_ms": "retention.ms",
    "retention_bytes": "retention.bytes",
    "local_retention_ms": "local.retention.ms",
    "local_retention_bytes": "local.retention.bytes",
}

FIELDS = (
    whole("partition", None, 0, 1_000_000, help="The partition; empty: the first that this broker has."),
    *(whole(name, None, -2 if name.startswith("local") else -1, help=f"What if {key} were this.")
      for name, key in _KEYS.items()),
)  # fmt: skip


def view(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return the fate of every segment with the current and with the tried settings."""
    topic, number = values["topic"], values["partition"]
    viewer.check_topic(topic)
    if number is None:
        number = next((each.partition for each in viewer.here(topic)), 0)
    partition = viewer.partition(topic, number)
    known = viewer.broker.metadata.topic(topic)
    properties = dict(known.configs) if known is not None else {}
    tried = {key: str(values[name]) for name, key in _KEYS.items() if values[name] is not None}
    config = viewer.log_config(properties)
    try:
        other = viewer.log_config({**properties, **tried}) if tried else config
    except InvalidConfigError as error:
        name = next((name for name in reversed(_KEYS) if values[name] is not None), "retention_ms")
        raise NotThatValueError(name, str(error)) from error
    now_ms = viewer.broker.clock.now_ms()
    rhythm = Rhythm(viewer.broker.config["log.retention.check.interval.ms"])
    local, remote = _local(partition), _remote(partition)
    as_is = _fates(partition, local, remote, config, now_ms, rhythm)
    then = _fates(partition, local, remote, other, now_ms, rhythm) if tried else as_is
    horizon = _horizon([*as_is, *then], now_ms)
    return {
        "topic": topic,
        "partition": number,
        "partitionCount": 0 if known is None else known.partition_count,
        "atMs": now_ms,
        "horizonMs": horizon,
        "isTiered": partition.remote is not None,
        "settings": _settings(config),
        "tried": _settings(other) if tried else None,
        "policy": ",".join(sorted(config.cleanup_policy)),
        "asIs": _sums(as_is, now_ms),
        "then": _sums(then, now_ms),
        "lines": [
            {"name": name, **_line(fates, now_ms, horizon)}
            for name, fates in ((("now", as_is), ("what if", then)) if tried else (("now", as_is),))
        ],
        "segments": [_as_json(fate, now_ms) for fate in then[:_TABLE_MAX]],
        "segmentCount": len(then),
    }


def _settings(config: LogConfig) -> dict[str, int]:
    return {
        "retention_ms": config.retention_ms,
        "retention_bytes": config.retention_bytes,
        "local_retention_ms": config.effective_local_retention_ms,
        "local_retention_bytes": config.effective_local_retention_bytes,
    }


def _local(partition: Partition) -> list[LocalSegment]:
    return [
        LocalSegment(
            segment.base_offset, segment.size_bytes, segment.largest_timestamp(), segment.first_batch_timestamp
        )
        for segment in partition.log.segments
    ]


def _remote(partition: Partition) -> list[RemoteLogSegmentMetadata]:
    return [] if partition.remote is None else partition.remote.segments(partition.topic_id_partition)


def _fates(
    partition: Partition,
    local: Sequence[LocalSegment],
    remote: Sequence[RemoteLogSegmentMetadata],
    config: LogConfig,
    now_ms: int,
    rhythm: Rhythm,
) -> list[Fate]:
    log = partition.log
    highest = log.highest_offset_in_remote_storage
    fates: list[Fate] = []
    if remote:
        deletes = "delete" in config.cleanup_policy
        facts = RetentionFacts(
            retention_ms=config.retention_ms if deletes else -1,
            retention_bytes=config.retention_bytes if deletes else -1,
            now_ms=now_ms,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            only_local_bytes=sum(each.size_bytes for each in local if each.base_offset > highest),
            lineage=lineage_of(log.leader_epochs.entries),
        )
        fates += forecast_remote(remote, facts, config)
    limits = RetentionLimits.of(
        config,
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        high_watermark=log.high_watermark,
        log_end_offset=log.log_end_offset,
        highest_offset_in_remote_storage=highest,
    )
    return fates + forecast_local(local, limits, config, now_ms, rhythm)


def _sums(fates: Sequence[Fate], now_ms: int) -> dict[str, Any]:
    due = [fate for fate in fates if fate.is_due(now_ms)]
    following = [fate.due.rule_ms for fate in fates if fate.due is not None and fate.due.rule_ms > now_ms]
    return {
        "segments": len(fates),
        "bytes": sum(fate.size_bytes for fate in fates),
        "dueSegments": len(due),
        "dueBytes": sum(fate.size_bytes for fate in due),
        "nextMs": min(following, default=None),
        "lastMs": max(following, default=None),
        "staysBytes": sum(fate.size_bytes for fate in fates if fate.due is None),
    }


def _horizon(fates: Sequence[Fate], now_ms: int) -> int:
    """Return the end of the time line: the last expected deletion, at least an hour from now."""
    last = max((fate.due.rule_ms for fate in fates if fate.due is not None), default=now_ms)
    return max(last, now_ms + 3_600_000)


def _line(fates: Sequence[Fate], now_ms: int, horizon: int) -> dict[str, Any]:
    """Return the bytes deleted over time in columns, and what is due at once and what is kept."""
    columns: dict[int, list[int]] = {}
    due = stays = 0
    for fate in fates:
        if fate.due is None:
            stays += fate.size_bytes
        elif fate.is_due(now_ms):
            due += fate.size_bytes
        else:
            at = min(int((fate.due.rule_ms - now_ms) * _COLUMNS / (horizon - now_ms)), _COLUMNS - 1)
            entry = columns.setdefault(at, [0, 0])
            entry[0] += fate.size_bytes
            entry[1] += 1
    largest = max([due, stays, *(size for size, _ in columns.values())], default=0) or 1
    step = (horizon - now_ms) / _COLUMNS
    return {
        "dueBytes": due,
        "staysBytes": stays,
        "columns": [
            {
                "x": at,
                "height": round(size / largest, 4),
                "bytes": size,
                "segments": count,
                "fromMs": int(now_ms + at * step),
                "toMs": int(now_ms + (at + 1) * step),
            }
            for at, (size, count) in sorted(columns.items())
        ],
    }


def _as_json(fate: Fate, now_ms: int) -> dict[str, Any]:
    return {
        "tier": fate.tier.value,
        "baseOffset": fate.base_offset,
        "endOffset": fate.end_offset,
        "bytes": fate.size_bytes,
        "newestMs": fate.largest_timestamp_ms,
        "rule": fate.rule,
        "dueMs": None if fate.due is None else fate.due.rule_ms,
        "deletedByMs": None if fate.due is None else fate.due.deleted_by_ms,
        "isDue": fate.is_due(now_ms),
        "text": fate.text,
    }
