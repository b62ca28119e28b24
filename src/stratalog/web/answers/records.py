"""Response types of records and messages."""

from __future__ import annotations

from typing import Literal, TypedDict


class BytesJson(TypedDict):
    """A key or value as text in a `format`, possibly cut; `bytes` is its full size."""

    text: str | None
    format: str
    bytes: int
    cut: bool


class RecordHeaderJson(TypedDict):
    """A header of a record."""

    name: str
    value: BytesJson


class RecordJson(TypedDict):
    """A decoded record, with its first headers."""

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
    """Records of a topic, newest first. `cursor` requests the next ones."""

    topic: str
    partitions: int
    records: list[TopicRecordJson]
    problems: list[str]
    cursor: str


class BatchJson(TypedDict):
    """The header of a batch."""

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
    """A part of a partition that was read; `error` ended it early, `next` is the offset to continue at."""

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
