"""The shapes of what the JSON API answers, from which its OpenAPI document has its schemas.

A test compares them with real answers, field by field. Times are milliseconds since 1970, UTC; sizes are bytes; rates
are a second. None is for what is not known, or not there.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

JsonTier = Literal["local", "remote"]


class PagedAnswer(TypedDict):
    """One page of many; `found` is how many there are in all."""

    found: int
    pageAt: int
    pages: int


# --- the overview -----------------------------------------------------------------------------------------------------


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


# --- topics -----------------------------------------------------------------------------------------------------------


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


# --- records ----------------------------------------------------------------------------------------------------------


class BytesJson(TypedDict):
    """A key or a value as text of a `format`, cut or whole; `bytes` is the size of all of it."""

    text: str | None
    format: str
    bytes: int
    cut: bool


class RecordHeaderJson(TypedDict):
    """A header of a record."""

    name: str
    value: BytesJson


class RecordJson(TypedDict):
    """A record, decoded; of many headers the first ones."""

    offset: int
    timestampMs: int
    key: BytesJson
    value: BytesJson
    headers: list[RecordHeaderJson]
    headerCount: int


class TopicRecordJson(RecordJson):
    """A record with its partition."""

    partition: int


class MessagesAnswer(TypedDict):
    """Records of a topic, the newest first. `cursor` asks for those behind them."""

    topic: str
    partitions: int
    records: list[TopicRecordJson]
    problems: list[str]
    cursor: str


class BatchJson(TypedDict):
    """What the header of a batch says."""

    baseOffset: int
    lastOffset: int
    records: int
    bytes: int
    codec: str
    magic: int
    maxTimestampMs: int
    timestampType: Literal["CreateTime", "LogAppendTime"]
    leaderEpoch: int | None
    producerId: int | None
    producerEpoch: int | None
    isTransactional: bool
    isControl: bool
    isSound: bool


class PartRead(TypedDict):
    """A part of a partition that was read; `error` is what ended it early, `next` the offset to go on at."""

    topic: str
    partition: int
    offset: int
    error: str | None
    logStartOffset: int
    highWatermark: int
    next: int | None


class BatchesAnswer(PartRead):
    """Batches of a partition."""

    isRemote: bool
    batches: list[BatchJson]


class RecordsAnswer(PartRead):
    """Records of a partition."""

    records: list[RecordJson]


# --- segments and retention -------------------------------------------------------------------------------------------


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


# --- groups -----------------------------------------------------------------------------------------------------------


class GroupsAnswer(PagedAnswer):
    """One page of groups."""

    groups: list[GroupRow]


class AssignmentJson(TypedDict):
    """Partitions of a topic that a member has."""

    topic: str
    partitions: list[int]


class MemberJson(TypedDict):
    """A member of a group."""

    memberId: str
    instanceId: str | None
    clientId: str
    host: str
    assignment: list[AssignmentJson]


class CommittedRow(TypedDict):
    """Where a group is in a partition; `note` is what is odd about it."""

    topic: str
    partition: int
    committedOffset: int
    logStartOffset: int | None
    highWatermark: int | None
    lag: int | None
    lagMs: int | None
    note: str


class OneGroupAnswer(TypedDict):
    """A group with its members and offsets."""

    id: str
    state: str
    type: str
    protocolType: str
    members: list[MemberJson]
    rows: list[CommittedRow]
    lag: int
    lagMs: int | None


# --- the tier ---------------------------------------------------------------------------------------------------------


class TierReasonJson(TypedDict):
    """Why partitions have local segments that are not copied, or not yet deleted."""

    reason: str
    meaning: str
    partitions: int


class TierCacheJson(TypedDict):
    """The cache of indexes of remote segments."""

    bytes: int
    capacityBytes: int


class TierQuotaJson(TypedDict):
    """A limit of the traffic with the store."""

    name: Literal["copy", "fetch"]
    key: str
    bytesPerSecond: int
    isLimited: bool
    throttledTimes: int
    throttledMs: float


class TierPoolJson(TypedDict):
    """Threads of the tier, and what waits for one."""

    name: str
    threads: int
    busy: int
    pending: int


class TaskFailureJson(TypedDict):
    """A task of the tier that fails, how often in a row, and since when."""

    task: str
    times: int
    sinceMs: int
    error: str


class RemediableFailure(TaskFailureJson):
    """A failure, and what helps."""

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


class TierAnswer(PagedAnswer):
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
    """A local segment, and why it is there."""

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


# --- the cluster, security, events ------------------------------------------------------------------------------------


class BrokerJson(TypedDict):
    """A broker of the cluster."""

    id: int
    host: str
    port: int
    rack: str | None
    isFenced: bool
    isController: bool
    kind: str


class ControllerJson(TypedDict):
    """A voter of the controllers' quorum."""

    id: int
    isLeader: bool
    logEndOffset: int


class BrokerSettingJson(TypedDict):
    """What is set on this broker."""

    name: str
    value: str | None
    isSensitive: bool
    help: str


class ClusterStateAnswer(TypedDict):
    """Brokers, controllers, features, and what is set on this broker."""

    clusterId: str
    controllerId: int
    nodeId: int
    brokers: list[BrokerJson]
    controllers: list[ControllerJson]
    metadataVersion: int
    features: dict[str, int]
    settings: list[BrokerSettingJson]


class MechanismJson(TypedDict):
    """A SCRAM mechanism of a user."""

    name: str
    iterations: int


class UserJson(TypedDict):
    """A user with SCRAM credentials."""

    user: str
    mechanisms: list[MechanismJson]


class AccessRuleJson(TypedDict):
    """A rule of access."""

    principal: str
    host: str
    operation: str
    permission: str
    type: str
    name: str
    pattern: str


class QuotaPart(TypedDict):
    """Whom a quota is for; the name None is the default."""

    type: str
    name: str | None


class QuotaLimit(TypedDict):
    """A limit."""

    key: str
    value: float


class ClientQuotaJson(TypedDict):
    """The limits of one user, client id, or both."""

    entity: list[QuotaPart]
    values: list[QuotaLimit]


class SecurityChoices(TypedDict):
    """What the forms of the page offer."""

    mechanisms: list[str]
    operations: list[str]
    types: list[str]
    patterns: list[str]
    permissions: list[str]
    quotas: list[str]


class SecurityAnswer(TypedDict):
    """Users, rules and quotas; an error says why some are not shown."""

    hasAuthorizer: bool
    principal: str
    users: list[UserJson]
    usersError: str | None
    acls: list[AccessRuleJson]
    aclsError: str | None
    hasQuotas: bool
    quotas: list[ClientQuotaJson]
    quotasError: str | None
    choices: SecurityChoices


class EventJson(TypedDict):
    """A line of the log; `times` is how often it came between `firstMs` and `atMs`."""

    atMs: int
    firstMs: int
    level: str
    source: str
    text: str
    times: int


class EventsAnswer(TypedDict):
    """Noteworthy events, the newest first."""

    events: list[EventJson]
    found: int


# --- changes, errors, health ------------------------------------------------------------------------------------------


class DoneAnswer(TypedDict):
    """What a change did, in words."""

    done: str


class WrongFieldsAnswer(TypedDict):
    """What is wrong with each field that is; or `error`, where the request cannot be read."""

    errors: NotRequired[dict[str, str]]
    error: NotRequired[str]


class ErrorAnswer(TypedDict):
    """Why there is no answer."""

    error: str


class LiveAnswer(TypedDict):
    """Whether the broker's loop turns; `reason` is why not."""

    status: Literal["live", "stalled"]
    reason: NotRequired[str]


class ReadyAnswer(TypedDict):
    """Whether clients of every kind are served, and what is missing: what is still read, directories by their error."""

    status: Literal["ready", "loading", "stalled"]
    loading: NotRequired[list[str]]
    offline_directories: NotRequired[dict[str, str]]
    reason: NotRequired[str]


class OpenApiAnswer(TypedDict):
    """An OpenAPI document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]
    security: list[dict[str, Any]]
