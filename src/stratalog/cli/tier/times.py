"""Times and spans of time on the command line, and in what is printed."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from stratalog.errors import UsageError

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(\d+)(ms|s|m|h|d)")


def time_ms(text: str, option: str) -> int:
    """Return a time in milliseconds since 1970: such a number, or ISO 8601 (UTC unless it says otherwise)."""
    if text.isdigit():
        return int(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: expected 2026-01-31, 2026-01-31T12:00:00Z or milliseconds") from None
    return round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)


def span_ms(text: str, option: str) -> int:
    """Return a span of time in milliseconds: 0, 90s, 30m, 24h, 7d."""
    match = _SPAN.fullmatch(text)
    if match is None and text != "0":
        raise UsageError(f"{option} {text}: expected a number and a unit, such as 90s, 30m, 24h or 7d")
    return 0 if match is None else int(match[1]) * _UNITS_MS[match[2]]


def time_text(ms: int) -> str:
    """UTC to the second; what no calendar holds as the number that it is, nothing for -1 (no record has a time)."""
    if ms < 0:
        return "" if ms == -1 else str(ms)
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(ms)
