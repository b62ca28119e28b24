"""Response types of the remote tier."""

from __future__ import annotations

from typing import Literal, TypedDict

from stratalog.web.answers.shared import PagedAnswer


class TierReasonJson(TypedDict):
    """A reason why partitions have local segments that are not copied, or not yet deleted."""

    reason: str
    meaning: str
    partitions: int


class TierCacheJson(TypedDict):
    """The cache of indexes of remote segments."""

    bytes: int
    capacityBytes: int


class TierQuotaJson(TypedDict):
    """A limit of the traffic to the store."""

    name: Literal["copy", "fetch"]
    key: str
    bytesPerSecond: int
    isLimited: bool
    throttledTimes: int
    throttledMs: float


class TierPoolJson(TypedDict):
    """A thread pool of the tier, and its queue."""

    name: str
    threads: int
    busy: int
    pending: int


class TaskFailureJson(TypedDict):
    """A failing task of the tier, how often in a row, and since when."""

    task: str
    times: int
    sinceMs: int
    error: str


class RemediableFailure(TaskFailureJson):
    """A failure, and what to do."""

    remedy: str


class TierRow(TypedDict):
    """A tiered partition."""

    topic: str
    partition: int
    reason: str
    text: str
    isFailing: bool
    localBytes: int
    remoteBytes: int
    remoteSegments: int
    uploadSegments: int
    uploadBytes: int
    deleteSegments: int
    deleteBytes: int
    failures: list[RemediableFailure]


class TierAnswer(PagedAnswer, TypedDict):
    """The remote tier, with one page of its partitions."""

    isTiered: bool
    store: str | None
    partitions: int
    failing: int
    uploadSegments: int
    uploadBytes: int
    deleteSegments: int
    deleteBytes: int
    localBytes: int
    remoteBytes: int
    reasons: list[TierReasonJson]
    unreachableSinceMs: int | None
    cache: TierCacheJson | None
    quotas: list[TierQuotaJson]
    pools: list[TierPoolJson]
    rows: list[TierRow]


class WaitingSegment(TypedDict):
    """A local segment, and why it is local."""

    baseOffset: int
    lastOffset: int
    bytes: int
    reason: str


class TierStatusJson(TypedDict):
    """Why the segments of a partition are still local, or not yet remote."""

    topic: str
    partition: int
    reason: str
    text: str
    isFailing: bool
    logStartOffset: int
    localLogStartOffset: int
    highestRemoteOffset: int
    lastStableOffset: int
    highWatermark: int
    logEndOffset: int
    lagSegments: int
    lagBytes: int
    localSegments: int
    localBytes: int
    remoteSegments: int
    remoteBytes: int
    failures: list[TaskFailureJson]
    segments: list[WaitingSegment]


class TierStatusAnswer(TypedDict):
    """The status of every partition; `failing` counts those that fail."""

    failing: int
    partitions: list[TierStatusJson]
