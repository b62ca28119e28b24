"""Words for what retention does: spans of time, times, and when an active segment rolls."""

from __future__ import annotations

from datetime import UTC, datetime

from stratalog.config import LogConfig
from stratalog.log.append import segment_ms_max


def roll_text(size_bytes: int, first_timestamp_ms: int | None, config: LogConfig, now_ms: int) -> str:
    """Describe when the active segment rolls. Until then, retention by size does not delete it."""
    left = config.segment_bytes - size_bytes
    text = (
        f"it rolls with the append that does not fit into segment.bytes={config.segment_bytes} "
        f"({max(left, 0)} bytes left)"
    )
    if first_timestamp_ms is None or first_timestamp_ms < 0 or not size_bytes:
        return text
    age = segment_ms_max(config)
    at = first_timestamp_ms + age
    when = "by the next append" if at < now_ms else f"by the first append with a timestamp after {time_text(at)}"
    return f"{text}, or {when}, {span_text(age)} (segment.ms) after its first record"


def span_text(ms: int) -> str:
    """Return a span of time by its two largest units."""
    if ms < 1000:
        return f"{ms} ms"
    parts = []
    rest = ms // 1000
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, seconds)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def time_text(time_ms: int) -> str:
    """Return a time in UTC to the second, or the number itself beyond the calendar."""
    try:
        return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
