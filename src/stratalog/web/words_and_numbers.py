"""Format numbers, sizes, durations and times for pages; times are UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup, escape

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS: Final = (("y", 31_536_000_000), ("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_YEAR_9999_MS: Final = 253_402_300_799_000
_NARROW: Final = "\u202f"
_DASH: Final = "–"


def size(count: float | None) -> str:
    """Return bytes in binary units."""
    if count is None:
        return _DASH
    value, at = float(count), 0
    while abs(value) >= 1024 and at < len(_UNITS) - 1:
        value, at = value / 1024, at + 1
    text = f"{value:.1f}" if at and abs(value) < 100 else f"{value:.0f}"
    return f"{text}{_NARROW}{_UNITS[at]}"


def number(count: float | None) -> str:
    """Return a number with thousands separators."""
    if count is None:
        return _DASH
    text = f"{count:,.0f}" if isinstance(count, int) or abs(count) >= 10 or count == int(count) else f"{count:.1f}"
    return text.replace(",", _NARROW)


def counted(count: int, one: str) -> str:
    """Return a number with its noun: 1 segment, 2 segments."""
    return f"{number(count)} {one}{'' if count == 1 else 's'}"


def limit(count: int | None) -> str:
    """Return a limit in bytes, where -1 is none."""
    return _DASH if count is None else "no limit" if count < 0 else size(count)


def span(ms: float | None) -> str:
    """Return a duration; -1 is for ever."""
    if ms is None:
        return _DASH
    if ms < 0:
        return "for ever"
    for unit, length in _SPANS:
        if ms >= length:
            value = ms / length
            text = f"{value:.0f}" if value >= 10 or abs(value - round(value)) < 0.05 else f"{value:.1f}"
            return f"{text}{_NARROW}{unit}"
    return f"{ms:.0f}{_NARROW}ms"


def ms(value: float) -> str:
    """Return a short time in milliseconds with about three digits."""
    if value >= 1000:
        return f"{value / 1000:.1f}{_NARROW}s"
    return f"{value:.2f}{_NARROW}ms" if value < 10 else f"{value:.0f}{_NARROW}ms"


def rate(count: float, unit: str = "B") -> str:
    """Return a rate per second."""
    return f"{size(count) if unit == 'B' else number(round(count, 1))}/s"


def iso(ms: int | None) -> str:
    """Return a time as ISO 8601, UTC."""
    if ms is None or not 0 <= ms <= _YEAR_9999_MS:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def when(ms: int | None) -> Markup:
    """Return a time element for users and programs."""
    if ms is None or ms < 0:
        return Markup(_DASH)
    if ms > _YEAR_9999_MS:
        return escape(f"{ms} ms")
    text = datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} ms, UTC">{}</time>').format(iso(ms), ms, text)


def link(path: str, given: Mapping[str, Any], **changes: Any) -> str:
    """Return a path with a changed query; leaves out empty parameters."""
    query = {name: value for name, value in {**given, **changes}.items() if value not in (None, "")}
    return f"{path}?{urlencode(query)}" if query else path
