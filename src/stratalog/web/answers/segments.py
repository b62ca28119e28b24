"""Response types of segments, batches and retention."""

from __future__ import annotations

from typing import Literal, TypedDict

from stratalog.web.answers.shared import JsonTier


class MapBlockJson(TypedDict):
    """A block of the map: one segment, or merged neighbours. `x` and `width` are thousandths of the map."""

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
    """A state of segments in the map."""

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
    """The settings of retention; -1 is no limit."""

    retention_ms: int
    retention_bytes: int
    local_retention_ms: int
    local_retention_bytes: int


class RetentionSums(TypedDict):
    """Bytes deleted now, deleted later, and kept."""

    segments: int
    bytes: int
    dueSegments: int
    dueBytes: int
    nextMs: int | None
    lastMs: int | None
    staysBytes: int


class RetentionColumn(TypedDict):
    """Bytes deleted within an interval of the time line; `height` is relative to the largest column."""

    x: int
    height: float
    bytes: int
    segments: int
    fromMs: int
    toMs: int


class RetentionLine(TypedDict):
    """The time line, with current or other settings."""

    name: Literal["now", "what if"]
    dueBytes: int
    staysBytes: int
    columns: list[RetentionColumn]


class SegmentFate(TypedDict):
    """When and by which rule a segment is deleted, also in words; no rule if it is kept."""

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
    """The fate of a partition's segments with the current and with the tried settings."""

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
