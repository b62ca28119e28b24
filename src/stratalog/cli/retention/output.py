"""The output of `retention explain`: the settings in force, then every segment of each partition with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stratalog.cli.out import on_terminal, print_json
from stratalog.cli.retention.sources import RetentionSources, ServedPartition
from stratalog.config import LogConfig
from stratalog.jobs import size_text
from stratalog.jobs.retention import Fate, PartitionForecast, span_text, time_text
from stratalog.util import print_table

_LESSON = (
    "retention.ms is the least time that a record is kept, not the most: a segment is deleted as a whole, once its "
    "newest record is old enough, oldest segment first. The broker checks every log.retention.check.interval.ms, and "
    "files stay file.delete.delay.ms longer."
)


def print_explained(
    topic: str,
    config: LogConfig,
    tried: Mapping[str, str],
    now_ms: int,
    forecasts: Sequence[PartitionForecast],
    sources: RetentionSources,
) -> None:
    print(f"{topic} at {time_text(now_ms)}: {_settings(config)}")
    if tried:
        print("assuming " + ", ".join(f"{key}={value}" for key, value in tried.items()))
    for each in forecasts:
        print()
        _print_partition(topic, each, now_ms, is_tried=bool(tried))
    if not forecasts:
        print()
        for served in sources.served:
            print(served_text(topic, served, config, now_ms))
    print()
    print(_LESSON)
    for note in sources.notes:
        print(f"note: {note}")


def _print_partition(topic: str, each: PartitionForecast, now_ms: int, *, is_tried: bool) -> None:
    fates = each.effective
    due = _due_bytes(fates, now_ms)
    total = sum(fate.size_bytes for fate in fates)
    print(f"{topic}-{each.partition}: {len(fates)} segments, {size_text(total)}, of which {size_text(due)} are due now")
    if is_tried:
        print(f"  with the current settings, {size_text(_due_bytes(each.fates, now_ms))} are due now")
    if on_terminal():
        columns = ("tier", "offsets", "size", "newest record", "due", "deleted by", "reason")
        print_table(columns, [_row(fate) for fate in fates])
        return
    for fate in fates:
        tier, offsets, size, newest, goes, gone, why = _row(fate)
        until = f"{goes}, deleted by {gone}" if gone else goes
        print(f"  {tier} {offsets} {size}, newest {newest}: {until}: {why}")


def _row(fate: Fate) -> tuple[str, ...]:
    offsets = f"{fate.base_offset}-{fate.end_offset}" if fate.end_offset >= fate.base_offset else f"{fate.base_offset}-"
    goes, gone = "no date", ""
    if fate.due is not None:
        goes, gone = f"due {time_text(fate.due.rule_ms)} by {fate.rule}", time_text(fate.due.deleted_by_ms)
    text = fate.text
    if fate.overstay_ms:
        text += f" (its first record is kept {span_text(fate.overstay_ms)} longer than retention)"
    return (
        fate.tier.value,
        offsets,
        size_text(fate.size_bytes),
        time_text(fate.largest_timestamp_ms),
        goes,
        gone,
        text,
    )


def _settings(config: LogConfig) -> str:
    parts = [
        f"cleanup.policy={','.join(sorted(config.cleanup_policy))}",
        f"retention.ms={config.retention_ms}" + _span(config.retention_ms),
        f"retention.bytes={config.retention_bytes}",
        f"segment.bytes={config.segment_bytes}",
        f"segment.ms={config.segment_ms}" + _span(config.segment_ms),
    ]
    if config.remote_storage_enable:
        parts.append(f"tiered, local.retention.ms={config.effective_local_retention_ms}")
        parts.append(f"local.retention.bytes={config.effective_local_retention_bytes}")
    return ", ".join(parts)


def _span(ms: int) -> str:
    return f" ({span_text(ms)})" if ms >= 0 else ""


def served_text(topic: str, served: ServedPartition, config: LogConfig, now_ms: int) -> str:
    """Describe a partition whose segments are unknown."""
    offsets = served.offsets
    text = f"{topic}-{served.partition}: offsets {offsets.log_start_offset}-{offsets.high_watermark - 1}"
    if offsets.high_watermark <= offsets.log_start_offset:
        return f"{topic}-{served.partition}: no records"
    if "delete" not in config.cleanup_policy:
        return f"{text}: cleanup.policy does not include delete, so nothing is deleted by age or size"
    return f"{text}: {_served_by_age(served, config, now_ms)}; {_served_by_size(served, config)}"


def _served_by_age(served: ServedPartition, config: LogConfig, now_ms: int) -> str:
    if config.retention_ms < 0:
        return "retention.ms is -1, so nothing is deleted by age"
    if served.newest_ms < 0:
        return "no record has a timestamp, so the age of the files counts"
    gone_ms = served.newest_ms + config.retention_ms
    word = "is due now" if gone_ms < now_ms else f"is deleted after {time_text(gone_ms)}"
    return (
        f"its newest record is of {time_text(served.newest_ms)}, so the last of it {word}; older segments are deleted "
        "one by one, each by its own newest record"
    )


def _served_by_size(served: ServedPartition, config: LogConfig) -> str:
    """Whole segments go, oldest first, while the rest is at least the limit."""
    if config.remote_storage_enable:
        name, limit = "local.retention.bytes", config.effective_local_retention_bytes
    else:
        name, limit = "retention.bytes", config.retention_bytes
    if limit < 0:
        return f"{name} is {limit}, so nothing is deleted by size"
    if served.size_bytes is None:
        return f"{name} is {limit}, and the broker does not report the size"
    holds = f"it holds {served.size_bytes} bytes, and {name} is {limit}"
    beyond = served.size_bytes - limit
    if beyond <= 0:
        return f"{holds}, so nothing is deleted by size"
    return f"{holds}, so up to {beyond} bytes of its oldest segments are due now by size"


def print_explained_json(
    topic: str,
    config: LogConfig,
    tried: Mapping[str, str],
    now_ms: int,
    forecasts: Sequence[PartitionForecast],
    sources: RetentionSources,
) -> None:
    print_json(
        {
            "topic": topic,
            "at": now_ms,
            "config": {
                "cleanup.policy": sorted(config.cleanup_policy),
                "retention.ms": config.retention_ms,
                "retention.bytes": config.retention_bytes,
                "local.retention.ms": config.effective_local_retention_ms,
                "local.retention.bytes": config.effective_local_retention_bytes,
                "segment.ms": config.segment_ms,
                "segment.bytes": config.segment_bytes,
                "remote.storage.enable": config.remote_storage_enable,
            },
            "what_if": dict(tried),
            "partitions": [
                {
                    "partition": each.partition,
                    "segments": [_json(fate) for fate in each.effective],
                    "due_now_bytes": _due_bytes(each.effective, now_ms),
                    "due_now_bytes_as_it_is": _due_bytes(each.fates, now_ms),
                }
                for each in forecasts
            ],
            "served": [
                {
                    "partition": each.partition,
                    "log_start_offset": each.offsets.log_start_offset,
                    "high_watermark": each.offsets.high_watermark,
                    "newest_record": each.newest_ms,
                    "bytes": each.size_bytes,
                    "explanation": served_text(topic, each, config, now_ms),
                }
                for each in sources.served
            ],
            "notes": list(sources.notes),
        }
    )


def _due_bytes(fates: Sequence[Fate], now_ms: int) -> int:
    return sum(fate.size_bytes for fate in fates if fate.is_due(now_ms))


def _json(fate: Fate) -> dict[str, Any]:
    due = fate.due
    return {
        "tier": fate.tier.value,
        "base_offset": fate.base_offset,
        "end_offset": fate.end_offset,
        "bytes": fate.size_bytes,
        "newest_record": fate.largest_timestamp_ms,
        "rule": fate.rule,
        "goes": None if due is None else due.rule_ms,
        "deleted_by": None if due is None else due.deleted_by_ms,
        "files_gone_by": None if due is None else due.files_gone_by_ms,
        "kept_by": [hold.value for hold in fate.holds],
        "overstay": fate.overstay_ms,
        "explanation": fate.text,
    }
