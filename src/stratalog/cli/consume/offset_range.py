"""`--offset`: where to start and stop, by offset, by time, or relative to an end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from stratalog.cli.tier import span_ms, time_ms
from stratalog.errors import UsageError
from stratalog.wire.client import EARLIEST_OFFSET, LATEST_OFFSET, Cluster

TopicPartition = tuple[str, int]

EXPECTED: Final = "expected start, end, N, N-M, -N (before the end), +N, @TIME, @-1h or @TIME:TIME"
_PARTITION: Final = re.compile(r"(\d+)=(.+)", re.DOTALL)
_OFFSETS: Final = re.compile(r"(\d*)[-:](\d*)")


class Anchor(Enum):
    """The base that the number of an `OffsetPoint` is relative to."""

    ZERO = "zero"
    START = "start"
    END = "end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class OffsetPoint:
    """A place in a partition: `value` is an offset, a distance from an end, or a time in ms."""

    anchor: Anchor
    value: int = 0


START: Final = OffsetPoint(Anchor.START)
END: Final = OffsetPoint(Anchor.END)


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """From `begin` to `stop` (exclusive); without an end if `stop` is None."""

    begin: OffsetPoint = START
    stop: OffsetPoint | None = None


def parse_offset(text: str, now_ms: int) -> tuple[int | None, OffsetSpan]:
    """Return the partition that an option names, if any, and the range. Raises UsageError."""
    match = _PARTITION.fullmatch(text)
    if match is not None:
        return int(match[1]), _range(match[2], now_ms)
    return None, _range(text, now_ms)


def _range(text: str, now_ms: int) -> OffsetSpan:
    if text.startswith(("@", "s@")):
        return _times(text.partition("@")[2], now_ms)
    if text.startswith("e@"):
        return OffsetSpan(stop=_time(text[2:], now_ms))
    named = {"start": START, "beginning": START, "earliest": START, "end": END, "latest": END}.get(text)
    if named is not None:
        return OffsetSpan(named)
    if text == ":end":
        return OffsetSpan(stop=END)
    if text.isdecimal():
        return OffsetSpan(OffsetPoint(Anchor.ZERO, int(text)))
    if text[:1] in "+-" and text[1:].isdecimal():
        return OffsetSpan(OffsetPoint(Anchor.START if text[0] == "+" else Anchor.END, int(text)))
    match = _OFFSETS.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        raise UsageError(f"--offset {text}: {EXPECTED}")
    begin = OffsetPoint(Anchor.ZERO, int(match[1])) if match[1] else START
    stop = OffsetPoint(Anchor.ZERO, int(match[2])) if match[2] else None
    if match[1] and match[2] and int(match[1]) > int(match[2]):
        raise UsageError(f"--offset {text}: the end is before the start")
    return OffsetSpan(begin, stop)


def _times(text: str, now_ms: int) -> OffsetSpan:
    """Parse a time, or two separated by a colon, which a time may also contain."""
    failure: UsageError | None = None
    try:
        return OffsetSpan(_time(text, now_ms))
    except UsageError as error:
        failure = error
    for at in (at for at, letter in enumerate(text) if letter == ":"):
        first, second = text[:at], text[at + 1 :]
        try:
            begin = _time(first, now_ms) if first else START
            return OffsetSpan(begin, _time(second, now_ms) if second else None)
        except UsageError:
            continue
    raise failure


def _time(text: str, now_ms: int) -> OffsetPoint:
    return END if text == "end" else OffsetPoint(Anchor.TIME, moment_ms(text, "--offset", now_ms))


def moment_ms(text: str, option: str, now_ms: int) -> int:
    """Return a time in ms: a date or time (ISO 8601), seconds or ms since 1970, or a span before now (-1h)."""
    if text.startswith("-"):
        return max(now_ms - span_ms(text[1:], option), 0)
    if text == "now":
        return now_ms
    ms = time_ms(text, option)
    return ms * 1000 if len(text) == 10 and text.isdecimal() else ms


def resolve(
    cluster: Cluster, ranges: Mapping[TopicPartition, OffsetSpan], *, read_committed: bool
) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return the offsets to start and stop at in each partition.

    Both are within its current log: a range with an end does not wait.
    """
    starts = _listed(cluster, dict.fromkeys(ranges, EARLIEST_OFFSET), read_committed)
    ends = _listed(cluster, dict.fromkeys(ranges, LATEST_OFFSET), read_committed)
    points = {point for each in ranges.values() for point in (each.begin, each.stop) if point is not None}
    times = {
        point: _listed(cluster, _that_have(ranges, point), read_committed)
        for point in points
        if point.anchor is Anchor.TIME
    }

    def offset(key: TopicPartition, point: OffsetPoint) -> int:
        if point.anchor is Anchor.TIME:
            found = times[point][key]
            return ends[key] if found < 0 else found
        if point.anchor is Anchor.ZERO:
            return point.value
        return (starts if point.anchor is Anchor.START else ends)[key] + point.value

    return {
        key: (
            min(max(offset(key, each.begin), starts[key]), ends[key]),
            None if each.stop is None else min(offset(key, each.stop), ends[key]),
        )
        for key, each in ranges.items()
    }


def _that_have(ranges: Mapping[TopicPartition, OffsetSpan], point: OffsetPoint) -> dict[TopicPartition, int]:
    return {key: point.value for key, each in ranges.items() if point in (each.begin, each.stop)}


def _listed(cluster: Cluster, asked: Mapping[TopicPartition, int], read_committed: bool) -> dict[TopicPartition, int]:
    return {key: answer.offset for key, answer in cluster.list_offsets(asked, read_committed=read_committed).items()}
