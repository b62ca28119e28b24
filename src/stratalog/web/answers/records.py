"""Records and messages: the shapes of the answers."""

from __future__ import annotations

from typing import Literal, TypedDict


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
