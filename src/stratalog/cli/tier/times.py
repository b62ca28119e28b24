"""Times and spans of time on the command line, and in what is printed."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from stratalog.errors import UsageError

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(\d+)(ms|s|m|h|d)")
#: Kafka's times and spans are 64-bit numbers.
_MS_MAX = (1 << 63) - 1
_DIGITS_MAX = 19


def time_ms(text: str, option: str) -> int:
    """Return a time in milliseconds since 1970: such a number, or ISO 8601 (UTC unless it says otherwise)."""
    if text.isdecimal() and text.isascii():
        return _checked_ms(int(text[: _DIGITS_MAX + 1]), f"{option} {text[:40]}")
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: expected 2026-01-31, 2026-01-31T12:00:00Z or milliseconds") from None
    ms = round((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000)
    return _checked_ms(ms, f"{option} {text}")


def span_ms(text: str, option: str) -> int:
    """Return a span of time in milliseconds: 0, 90s, 30m, 24h, 7d."""
    match = _SPAN.fullmatch(text)
    if match is None and text != "0":
        raise UsageError(f"{option} {text}: expected a number and a unit, such as 90s, 30m, 24h or 7d")
    if match is None:
        return 0
    return _checked_ms(int(match[1][: _DIGITS_MAX + 1]) * _UNITS_MS[match[2]], f"{option} {text[:40]}")


def _checked_ms(ms: int, what: str) -> int:
    """Return the time. Raises UsageError if it is negative, which has other meanings in Kafka, or over 64 bits."""
    if not 0 <= ms <= _MS_MAX:
        raise UsageError(f"{what}: expected a time from 1970 on, and within 64 bits")
    return ms


def time_text(ms: int) -> str:
    """Return UTC to the second, the bare number outside of the calendar, and nothing for -1 (no record has a time)."""
    if ms < 0:
        return "" if ms == -1 else str(ms)
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(ms)
