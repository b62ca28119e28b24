"""Response types of topics, their settings and consumers."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from stratalog.web.answers.overview import TierNumbersJson
from stratalog.web.answers.shared import PagedAnswer


class ShortSettings(TypedDict):
    """The most important settings of a topic; without those of the local tier for a deleted topic."""

    policy: str
    tiered: bool
    retentionMs: int
    retentionBytes: int
    localRetentionMs: NotRequired[int]
    localRetentionBytes: NotRequired[int]


class TopicRates(TypedDict):
    """Incoming and outgoing rates."""

    bytesInRate: float
    bytesOutRate: float
    recordsInRate: float


class TopicRow(TierNumbersJson, TopicRates, ShortSettings):
    """A topic in the list."""

    name: str
    internal: bool


class TopicsAnswer(PagedAnswer):
    """One page of topics."""

    topics: list[TopicRow]


class OneTopicAnswer(TopicRates, ShortSettings):
    """Common parts of a topic's pages."""

    topic: str
    topicId: str | None
    createdMs: int | None
    partitionCount: int
    numbers: TierNumbersJson


class PartitionRow(TypedDict):
    """A partition. Without a local replica or with a failed disk it has only `error`."""

    partition: int
    leader: int | None
    isHere: bool
    error: str | None
    partitions: NotRequired[int]
    offline: NotRequired[int]
    records: NotRequired[int]
    segments: NotRequired[int]
    localBytes: NotRequired[int]
    remoteBytes: NotRequired[int]
    remoteSegments: NotRequired[int]
    uploadBytes: NotRequired[int]
    uploadSegments: NotRequired[int]
    deleteBytes: NotRequired[int]
    deleteSegments: NotRequired[int]
    failing: NotRequired[int]
    leaderEpoch: NotRequired[int]
    logStartOffset: NotRequired[int]
    localLogStartOffset: NotRequired[int]
    lastStableOffset: NotRequired[int]
    highWatermark: NotRequired[int]
    logEndOffset: NotRequired[int]


class PartitionsAnswer(OneTopicAnswer):
    """A topic with one page of its partitions."""

    pageAt: int
    pages: int
    rows: list[PartitionRow]


class TopicSettingJson(TypedDict):
    """A setting of a topic; `source` is the origin of its value."""

    name: str
    value: str | None
    isSensitive: bool
    isReadOnly: bool
    source: str
    help: str


class SettingsAnswer(OneTopicAnswer):
    """A topic with its settings; `changed` counts those set on the topic itself."""

    settings: list[TopicSettingJson]
    changed: int


class GroupRow(TypedDict):
    """A group with its lag; `lagMs` is the age of the oldest unread record."""

    id: str
    state: str
    type: str
    protocolType: str
    topics: list[str]
    partitions: int
    lag: int
    lagMs: int | None


class ConsumersAnswer(OneTopicAnswer):
    """A topic with the groups that read it."""

    groups: list[GroupRow]
