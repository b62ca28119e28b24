"""Segments, batches and retention: the shapes of the answers."""

from __future__ import annotations

from typing import Literal, TypedDict

from stratalog.web.answers.shared import JsonTier


class MapBlockJson(TypedDict):
    """What is drawn: one segment, or neighbours as one. `x` and `width` are thousandths of the map."""

    x: float
    width: float
    segments: int
    state: str
    baseOffset: int
    endOffset: int
    fromMs: int
    toMs: int
    bytes: int
    reason: str


class SegmentLane(TypedDict):
    """A tier of the map."""

    name: JsonTier
    segments: int
    blocks: list[MapBlockJson]


class SegmentStateJson(TypedDict):
    """A state that segments of the map have."""

    state: str
    meaning: str
    segments: int


class SegmentRow(TypedDict):
    """A segment in the table below the map."""

    tier: JsonTier
    baseOffset: int
    endOffset: int
    bytes: int
    fromMs: int
    toMs: int
    state: str
    reason: str


class SegmentsAnswer(TypedDict):
    """The segment map of a partition; `low` and `high` are its ends on the axis."""

    topic: str
    partition: int
    axis: Literal["time", "offset", "size"]
    low: int
    high: int
    logStartOffset: int
    localLogStartOffset: int
    highWatermark: int
    logEndOffset: int
    activeBaseOffset: int
    segmentCount: int
    shownCount: int
    localBytes: int
    remoteBytes: int
    isTiered: bool
    legend: list[SegmentStateJson]
    lanes: list[SegmentLane]
    table: list[SegmentRow]


class RetentionSettingsJson(TypedDict):
    """The settings that decide when segments go; -1 is no limit."""

    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int


class RetentionSums(TypedDict):
    """What goes now, what goes when, and what stays."""

    segments: int
    bytes: int
    dueSegments: int
    dueBytes: int
    nextMs: int | None
    lastMs: int | None
    staysBytes: int


class RetentionColumn(TypedDict):
    """What goes within a stretch of the time line; `height` is a share of the largest column."""

    x: int
    height: float
    bytes: int
    segments: int
    fromMs: int
    toMs: int


class RetentionLine(TypedDict):
    """The time line, as it is or as it would be."""

    name: Literal["now", "what if"]
    dueBytes: int
    staysBytes: int
    columns: list[RetentionColumn]


class SegmentFate(TypedDict):
    """When a segment goes, by which rule, in words too; no rule is for one that stays."""

    tier: JsonTier
    baseOffset: int
    endOffset: int
    bytes: int
    newestMs: int
    rule: str | None
    dueMs: int | None
    deletedByMs: int | None
    isDue: bool
    text: str


class RetentionAnswer(TypedDict):
    """The fate of a partition's segments as it is, and with the settings that are tried."""

    topic: str
    partition: int
    partitionCount: int
    atMs: int
    horizonMs: int
    isTiered: bool
    settings: RetentionSettingsJson
    tried: RetentionSettingsJson | None
    policy: str
    asIs: RetentionSums
    then: RetentionSums
    lines: list[RetentionLine]
    segments: list[SegmentFate]
    segmentCount: int
