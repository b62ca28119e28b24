"""Topics, their settings and consumers: the shapes of the answers."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from stratalog.web.answers.overview import TierNumbersJson
from stratalog.web.answers.shared import PagedAnswer


class ShortSettings(TypedDict):
    """What matters most of a topic's settings; those of the local tier are left out of a topic that has just gone."""

    policy: str
    tiered: bool
    retentionMs: int
    retentionBytes: int
    localRetentionMs: NotRequired[int]
    localRetentionBytes: NotRequired[int]


class TopicRates(TypedDict):
    """What comes in and goes out."""

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
    """What the pages of a topic have in common."""

    topic: str
    topicId: str | None
    createdMs: int | None
    partitionCount: int
    numbers: TierNumbersJson


class PartitionRow(TypedDict):
    """A partition. Of one that is not here, or whose disk has failed, `error` says so, and the rest is left out."""

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
    """A setting of a topic; `source` is where its value comes from."""

    name: str
    value: str | None
    isSensitive: bool
    isReadOnly: bool
    source: str
    help: str


class SettingsAnswer(OneTopicAnswer):
    """A topic with its settings; `changed` counts those that are set on the topic itself."""

    settings: list[TopicSettingJson]
    changed: int


class GroupRow(TypedDict):
    """A group with its lag; `lagMs` is the age of the oldest record that it has not read."""

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
