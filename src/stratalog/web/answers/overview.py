"""Response types of the overview."""

from __future__ import annotations

from typing import Literal, TypedDict


class TierNumbersJson(TypedDict):
    """Partitions, records and bytes in both tiers."""

    partitions: int
    offline: int
    records: int
    segments: int
    localBytes: int
    remoteBytes: int
    remoteSegments: int
    uploadBytes: int
    uploadSegments: int
    deleteBytes: int
    deleteSegments: int
    failing: int


class RatePointJson(TypedDict):
    """Rates of an interval that ended at `atMs`, and quantiles of times in milliseconds."""

    atMs: int
    bytesIn: float
    bytesOut: float
    recordsIn: float
    requests: float
    waitP50Ms: float
    waitP99Ms: float
    produceP50Ms: float
    produceP99Ms: float
    fetchP50Ms: float
    fetchP99Ms: float


class RequestTimesJson(TypedDict):
    """Requests of one name: the total count, and the times of the last minutes."""

    name: str
    requests: int
    perSecond: float
    p50Ms: float
    p99Ms: float
    maxMs: float


class DiskJson(TypedDict):
    """A log directory and its disk; `offline` is the reason of a failure."""

    path: str
    offline: str | None
    logBytes: int
    totalBytes: int | None
    usedBytes: int | None
    freeBytes: int | None


class AttentionJson(TypedDict):
    """A problem; `link` is the page with details."""

    severity: Literal["bad", "warn", "info"]
    title: str
    text: str
    link: str | None


class BusyTopicJson(TypedDict):
    """A topic with its current rates."""

    topic: str
    bytesIn: float
    bytesOut: float
    recordsIn: float


class OverviewAnswer(TypedDict):
    """The state of the broker. `isStalled`: its event loop does not respond."""

    clusterId: str
    nodeId: int
    bootstrapServers: str
    atMs: int
    isStalled: bool
    topicCount: int
    internalTopicCount: int
    numbers: TierNumbersJson
    isTiered: bool
    rates: list[RatePointJson]
    requests: list[RequestTimesJson]
    disks: list[DiskJson]
    attention: list[AttentionJson]
    busiest: list[BusyTopicJson]
