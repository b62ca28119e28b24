"""The overview: the shapes of the answers."""

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
    """Requests of one name: how many so far, and how long those of the last minutes took."""

    name: str
    requests: int
    perSecond: float
    p50Ms: float
    p99Ms: float
    maxMs: float


class DiskJson(TypedDict):
    """A log directory and the disk below it; `offline` is why it failed."""

    path: str
    offline: str | None
    logBytes: int
    totalBytes: int | None
    usedBytes: int | None
    freeBytes: int | None


class AttentionJson(TypedDict):
    """What needs attention; `link` is the page that says more."""

    severity: Literal["bad", "warn", "info"]
    title: str
    text: str
    link: str | None


class BusyTopicJson(TypedDict):
    """A topic with the rates of now."""

    topic: str
    bytesIn: float
    bytesOut: float
    recordsIn: float


class OverviewAnswer(TypedDict):
    """The state of the broker. `isStalled`: its event loop does not turn."""

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
