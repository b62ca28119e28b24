"""The segment map of a partition: every segment of both tiers, to scale on an axis of time, offsets or bytes.

A segment extends from the newest record before it to its own newest record. If a lane has more segments than fit,
neighbours are merged here: a hundred thousand segments cost the browser no more than a hundred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stratalog.engine import Partition
from stratalog.engine.tiering import tier_statuses
from stratalog.errors import StratalogError
from stratalog.remote.api import RemoteLogSegmentState
from stratalog.remote.tier import MEANING
from stratalog.web.declarations import Console
from stratalog.web.fields import choice, moment, whole
from stratalog.web.viewer import ConsoleViewer

#: Maximum number of blocks in a lane.
BLOCKS_MAX: Final = 400
#: In 1/1000 of the map's width.
_NARROW: Final = 3.0
_LARGEST: Final = 2**63 - 1

FIELDS = (
    choice("axis", ("time", "offset", "size"), help="The axis of the map."),
    moment("since", help="Segments from here on: a time such as 2026-01-31T12:00 or -6h."),
    moment("until", help="Segments up to here."),
    whole("first", None, help="Segments from this offset on."),
    whole("last", None, help="Segments up to this offset."),
)

_REMOTE_STATES: Final = {
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: "copying",
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED: "remote",
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: "deleting",
}
#: Descriptions of states for the legend, by urgency: the first one in a block counts.
LEGEND: Final = {
    "failing": "the copy fails",
    "deleting": "being deleted from the remote tier",
    "copying": "being copied to the remote tier",
    "waiting": "to be uploaded",
    "active": "appends go here",
    "both": "local, and remote as well",
    "local": "on this disk only",
    "remote": "in the remote tier",
}


@dataclass(frozen=True, slots=True)
class MapSegment:
    """One segment of one tier. `end_offset` is its last; `from_ms` is its start on the time axis."""

    tier: str
    base_offset: int
    end_offset: int
    size_bytes: int
    from_ms: int
    to_ms: int
    state: str
    reason: str


def view(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return the requested part of the map."""
    topic, number = values["topic"], values["partition"]
    viewer.check_topic(topic)
    partition = viewer.partition(topic, number)
    log = partition.log
    local, remote = local_segments(viewer, partition), remote_segments(partition)
    everything = [*remote, *local]
    axis = values["axis"]
    shown = {name: _within(lane, values) for name, lane in (("remote", remote), ("local", local))}
    spans = {name: _spans(lane, axis) for name, lane in shown.items()}
    ends = [edge for lane in spans.values() for span in lane for edge in span]
    low, high = (min(ends), max(ends)) if ends else (0, 1)
    states = Counter(each.state for each in everything)
    newest = log.active_segment.base_offset
    return {
        "topic": topic,
        "partition": number,
        "axis": axis,
        "low": low,
        "high": max(high, low + 1),
        "logStartOffset": log.log_start_offset,
        "localLogStartOffset": log.local_log_start_offset,
        "highWatermark": log.high_watermark,
        "logEndOffset": log.log_end_offset,
        "activeBaseOffset": newest,
        "segmentCount": len(everything),
        "shownCount": sum(map(len, shown.values())),
        "localBytes": sum(each.size_bytes for each in local),
        "remoteBytes": sum(each.size_bytes for each in remote if each.state == "remote"),
        "isTiered": partition.remote is not None or bool(remote),
        "legend": [
            {"state": state, "meaning": meaning, "segments": states[state]}
            for state, meaning in LEGEND.items()
            if states[state]
        ],
        "lanes": [
            {"name": name, "segments": len(lane), "blocks": _blocks(lane, spans[name], low, max(high, low + 1))}
            for name, lane in shown.items()
            if lane or name == "local"
        ],
        "table": [_as_json(each) for each in sorted(shown["remote"] + shown["local"], key=_table_order)[-_TABLE_MAX:]][
            ::-1
        ],
    }


_TABLE_MAX: Final = 50


def _table_order(segment: MapSegment) -> tuple[int, str]:
    return segment.base_offset, segment.tier


def local_segments(viewer: ConsoleViewer, partition: Partition) -> list[MapSegment]:
    """Return the local segments, oldest first."""
    log = partition.log
    segments = log.segments
    why: dict[int, str] = {}
    if partition.remote is not None:
        for status in tier_statuses(viewer.broker.logs, partition.topic):
            if status.partition == partition.partition:
                why = {each.base_offset: each.reason.value for each in status.segments}
    found: list[MapSegment] = []
    before: int | None = None
    end_of_log = log.log_end_offset
    for at, segment in enumerate(segments):
        end = segments[at + 1].base_offset if at + 1 < len(segments) else end_of_log
        largest = segment.largest_timestamp()
        if before is None:
            first = segment.first_batch_timestamp
            before = largest if first is None or first < 0 else first
        reason = why.get(segment.base_offset, "")
        found.append(
            MapSegment(
                tier="local",
                base_offset=segment.base_offset,
                end_offset=end - 1,
                size_bytes=segment.size_bytes,
                from_ms=min(before, largest),
                to_ms=largest,
                state=_local_state(reason, is_active=at + 1 == len(segments), is_tiered=partition.remote is not None),
                reason=reason,
            )
        )
        before = max(before, largest)
    return found


def _local_state(reason: str, *, is_active: bool, is_tiered: bool) -> str:
    if is_active:
        return "active"
    if not is_tiered or reason in ("disabled", "copy disabled", ""):
        return "local"
    return {"local retention": "both", "failing": "failing", "copying": "copying"}.get(reason, "waiting")


def remote_segments(partition: Partition) -> list[MapSegment]:
    """Return the remote segments, oldest first; none while their metadata is loading."""
    if partition.remote is None:
        return []
    try:
        listed = partition.remote.segments(partition.topic_id_partition)
    except StratalogError:
        return []
    found = []
    before: int | None = None
    for each in sorted(listed, key=lambda one: (one.start_offset, one.end_offset)):
        state = _REMOTE_STATES.get(each.state)
        if state is None:
            continue
        largest = max(each.max_timestamp_ms, 0)
        begin = largest if before is None else min(before, largest)
        found.append(
            MapSegment(
                tier="remote",
                base_offset=each.start_offset,
                end_offset=each.end_offset,
                size_bytes=each.segment_size_bytes,
                from_ms=begin,
                to_ms=largest,
                state=state,
                reason="",
            )
        )
        before = largest if before is None else max(before, largest)
    return found


def _within(lane: Sequence[MapSegment], values: Mapping[str, Any]) -> list[MapSegment]:
    since, until = values["since"], values["until"]
    first, last = values["first"], values["last"]
    return [
        each
        for each in lane
        if (since is None or each.to_ms >= since)
        and (until is None or each.from_ms <= until)
        and (first is None or each.end_offset >= first)
        and (last is None or each.base_offset <= last)
    ]


def _spans(lane: Iterable[MapSegment], axis: str) -> list[tuple[int, int]]:
    """Return the extent of each segment on the axis."""
    if axis == "time":
        return [(each.from_ms, each.to_ms) for each in lane]
    if axis == "offset":
        return [(each.base_offset, each.end_offset + 1) for each in lane]
    spans, at = [], 0
    for each in lane:
        spans.append((at, at + each.size_bytes))
        at += each.size_bytes
    return spans


def _blocks(lane: Sequence[MapSegment], spans: Sequence[tuple[int, int]], low: int, high: int) -> list[dict[str, Any]]:
    """Return the blocks of a lane: segments, or merged neighbours if there are too many. x and width in 1/1000."""
    scale = 1000 / (high - low)
    if len(lane) <= BLOCKS_MAX:
        groups = [[at] for at in range(len(lane))]
    else:
        columns: dict[int, list[int]] = {}
        for at, (begin, end) in enumerate(spans):
            columns.setdefault(int(((begin + end) / 2 - low) * BLOCKS_MAX / (high - low)), []).append(at)
        groups = [columns[column] for column in sorted(columns)]
    blocks = [_block([lane[at] for at in group], [spans[at] for at in group], low, scale) for group in groups]
    # Narrow ones last: they are drawn over wide ones with the same start.
    return sorted(blocks, key=lambda block: block["width"] < _NARROW)


def _block(segments: Sequence[MapSegment], spans: Sequence[tuple[int, int]], low: int, scale: float) -> dict[str, Any]:
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    states = {each.state for each in segments}
    state = next(name for name in LEGEND if name in states)
    x = (begin - low) * scale
    reasons = Counter(each.reason for each in segments if each.reason)
    return {
        "x": round(x, 2),
        "width": round(max((end - begin) * scale, 0.0), 2),
        "segments": len(segments),
        "state": state,
        "baseOffset": segments[0].base_offset,
        "endOffset": segments[-1].end_offset,
        "fromMs": min(each.from_ms for each in segments),
        "toMs": max(each.to_ms for each in segments),
        "bytes": sum(each.size_bytes for each in segments),
        "reason": ", ".join(_meaning(reason) for reason, _ in reasons.most_common(2)),
    }


def _meaning(reason: str) -> str:
    return next((text for each, text in MEANING.items() if each.value == reason), reason)


def _as_json(each: MapSegment) -> dict[str, Any]:
    return {
        "tier": each.tier,
        "baseOffset": each.base_offset,
        "endOffset": each.end_offset,
        "bytes": each.size_bytes,
        "fromMs": each.from_ms,
        "toMs": each.to_ms,
        "state": each.state,
        "reason": _meaning(each.reason) if each.reason else "",
    }
