"""Fetch requests and responses as bytes, versions 4 to 18; kio is the oracle of both in the tests.

    request:  [up to v14: replica id int32], max wait int32, min bytes int32, max bytes int32, isolation int8,
              v7+: session id int32, session epoch int32,
              topics[ name (v13+: id), partitions[ index int32, v9+: current leader epoch int32, fetch offset int64,
                      v12+: last fetched epoch int32, v5+: log start offset int64, max bytes int32 ] ],
              v7+: forgotten topics[], v11+: rack, v15+: replica id and epoch as tagged field 1
    response: throttle int32, v7+: error int16, session id int32,
              topics[ name (v13+: id), partitions[ index int32, error int16, high watermark int64, last stable offset
                      int64, v5+: log start offset int64, aborted transactions[ producer id int64, first offset int64 ],
                      v11+: preferred read replica int32, records, v12+: diverging epoch as tagged field 0 ] ]

Versions from 12 on are flexible. Records are file ranges or bytes and are not copied.
Source: FetchRequest.json, FetchResponse.json of Kafka 4.4.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from stratalog.broker.frame_fields import (
    compact_length,
    encode_topic,
    flexible_topic,
    leader_hint,
    legacy_topic,
    node_endpoints,
    varint,
)
from stratalog.broker.server import Chunk
from stratalog.errors import InvalidRequestError
from stratalog.log.format import FileSlice
from stratalog.wire import INT16, INT32, skip_tagged_fields

#: First version with the client's rack and the preferred read replica (KIP-392).
RACK_FROM = 11
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13

_SESSIONS_FROM = 7
_REPLICA_STATE_TAG_FROM = 15
_REPLICA_STATE_TAG = 1

_WAIT_MIN_MAX_ISOLATION = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
#: Layouts of a partition by version, with the names in `FetchPartition`.
_PARTITION_V4 = struct.Struct(">iqi")  # index, offset, max bytes
_PARTITION_V5 = struct.Struct(">iqqi")  # index, offset, log start, max bytes
_PARTITION_V9 = struct.Struct(">iiqqi")  # index, leader epoch, offset, log start, max bytes
_PARTITION_V12 = struct.Struct(">iiqiqi")  # index, leader epoch, offset, last fetched epoch, log start, max bytes

_ANSWER_V4 = struct.Struct(">ihqq")
_ANSWER_V5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
#: Id and epoch of a replica.
_REPLICA = struct.Struct(">iq")


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_bytes: int
    #: The replica's, in requests of followers.
    log_start_offset: int = -1


class FetchTopic(NamedTuple):
    """`key` is the topic as in the request: its name in UTF-8, or the 16 bytes of its id."""

    key: bytes
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    #: Partitions to remove from the session, by topic key.
    forgotten: Sequence[tuple[bytes, Sequence[int]]] = ()
    #: The broker epoch of a follower.
    replica_epoch: int = -1
    #: The client's rack, from version 11 on.
    rack: str = ""


class FetchedPartition(NamedTuple):
    """The result for one partition.

    `aborted` is None unless the request is read_committed; `diverging` is (epoch, end offset); `leader` is (id, epoch),
    if this broker is not the leader. `preferred` is the preferred read replica, -1 for this broker.
    """

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: FileSlice | bytes = b""
    aborted: Sequence[tuple[int, int]] | None = None
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    preferred: int = -1

    @property
    def size(self) -> int:
        """Size of the records in bytes."""
        records = self.records
        return records.size if isinstance(records, FileSlice) else len(records)


def parse_fetch(frame: memoryview, position: int, version: int) -> FetchRequest:
    """Parse from `position`, after the request header. InvalidRequestError, IndexError or struct.error if invalid."""
    replica_id = -1
    if version < _REPLICA_STATE_TAG_FROM:
        (replica_id,) = INT32.unpack_from(frame, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation = _WAIT_MIN_MAX_ISOLATION.unpack_from(frame, position)
    position += 13
    session_id, session_epoch, replica_epoch, rack = 0, -1, -1, ""
    if version >= _SESSIONS_FROM:
        session_id, session_epoch = _SESSION.unpack_from(frame, position)
        position += 8
    if version >= FLEXIBLE_FROM:
        topics, forgotten, position = _parse_flexible_topics(frame, position, version)
        rack, replica = _parse_tail(frame, position, version)
        if replica is not None:
            replica_id, replica_epoch = replica
    else:
        topics, forgotten, position = _parse_legacy_topics(frame, position, version)
        if version >= RACK_FROM:
            (length,) = INT16.unpack_from(frame, position)
            rack = _text(frame, position + 2, length)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        replica_epoch,
        rack,
    )


_Forgotten = list[tuple[bytes, tuple[int, ...]]]


def _parse_legacy_topics(frame: memoryview, position: int, version: int) -> tuple[list[FetchTopic], _Forgotten, int]:
    """Return the topics, the forgotten topics, and the position after them."""
    topics = []
    (topic_count,) = INT32.unpack_from(frame, position)
    position += 4
    for _ in range(topic_count):
        name, partition_count, position = legacy_topic(frame, position)
        partitions = []
        for _ in range(partition_count):
            if version >= 9:
                index, epoch, offset, log_start, max_bytes = _PARTITION_V9.unpack_from(frame, position)
                position += 28
            elif version >= 5:
                index, offset, log_start, max_bytes = _PARTITION_V5.unpack_from(frame, position)
                position, epoch = position + 24, -1
            else:
                index, offset, max_bytes = _PARTITION_V4.unpack_from(frame, position)
                position, epoch, log_start = position + 16, -1, -1
            partitions.append(FetchPartition(index, epoch, offset, -1, max_bytes, log_start))
        topics.append(FetchTopic(name, partitions))
    forgotten: _Forgotten = []
    if version >= _SESSIONS_FROM:
        (forgotten_count,) = INT32.unpack_from(frame, position)
        position += 4
        for _ in range(forgotten_count):
            name, count, position = legacy_topic(frame, position)
            forgotten.append((name, _indexes(frame, position, count)))
            position += 4 * max(count, 0)
    return topics, forgotten, position


def _text(frame: memoryview, position: int, length: int) -> str:
    if length < 0 or position + length > len(frame):
        raise InvalidRequestError("the rack runs beyond the end of the request, or is null")
    try:
        return str(frame[position : position + length], "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the rack is not UTF-8: {error}") from error


def _indexes(frame: memoryview, position: int, count: int) -> tuple[int, ...]:
    if position + 4 * count > len(frame):
        raise InvalidRequestError("forgotten partitions run beyond the end of the request")
    return struct.unpack_from(f">{max(count, 0)}i", frame, position)


def _parse_flexible_topics(frame: memoryview, position: int, version: int) -> tuple[list[FetchTopic], _Forgotten, int]:
    """Return the topics, the forgotten topics, and the position after them."""
    topics = []
    topic_count, position = compact_length(frame, position)
    for _ in range(topic_count):
        key, partition_count, position = flexible_topic(frame, position, version >= TOPIC_IDS_FROM)
        partitions = []
        for _ in range(partition_count):
            index, epoch, offset, last_epoch, log_start, max_bytes = _PARTITION_V12.unpack_from(frame, position)
            position += 32
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
            partitions.append(FetchPartition(index, epoch, offset, last_epoch, max_bytes, log_start))
        position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
        topics.append(FetchTopic(key, partitions))
    forgotten: _Forgotten = []
    forgotten_count, position = compact_length(frame, position)
    for _ in range(forgotten_count):
        key, count, position = flexible_topic(frame, position, version >= TOPIC_IDS_FROM)
        forgotten.append((key, _indexes(frame, position, count)))
        position = skip_tagged_fields(frame, position + 4 * max(count, 0))
    return topics, forgotten, position


def _parse_tail(frame: memoryview, position: int, version: int) -> tuple[str, tuple[int, int] | None]:
    """Return the rack, and the replica's id and epoch if they are in a tagged field."""
    length, position = compact_length(frame, position)
    rack = _text(frame, position, length)
    position += length
    if frame[position] == 0:
        return rack, None
    count, position = compact_length(frame, position)
    replica: tuple[int, int] | None = None
    for _ in range(count + 1):  # a plain varint, read as a length
        tag, position = compact_length(frame, position)
        size, position = compact_length(frame, position)
        if tag + 1 == _REPLICA_STATE_TAG and version >= _REPLICA_STATE_TAG_FROM:
            replica = _REPLICA.unpack_from(frame, position)
        position += size + 1
    return rack, replica


class _Encoder:
    """Joins bytes, keeps file ranges separate, and counts the total size."""

    __slots__ = ("chunks", "head", "size")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.head = bytearray(4)
        self.size = 0

    def records(self, records: FileSlice | bytes) -> None:
        if not isinstance(records, FileSlice) and len(records) < 4096:
            self.head += records
            return
        self.size += len(self.head) + (records.size if isinstance(records, FileSlice) else len(records))
        self.chunks.append(self.head)
        self.chunks.append(records)
        self.head = bytearray()

    def finish(self) -> list[Chunk]:
        if self.head:
            self.size += len(self.head)
            self.chunks.append(self.head)
        first = self.chunks[0]
        assert isinstance(first, bytearray)
        INT32.pack_into(first, 0, self.size - 4)
        return self.chunks


def encode_fetch(
    version: int,
    correlation_id: int,
    results: Sequence[tuple[bytes, Sequence[FetchedPartition]]],
    *,
    session_id: int = 0,
    error_code: int = 0,
    throttle_ms: int = 0,
    nodes: Sequence[tuple[int, str, int, str | None]] = (),
) -> list[Chunk]:
    """Return a complete response frame as bytes and file ranges; each topic by its key in the request.

    `nodes` are the leaders in the results, from version 16 on.
    """
    encoder = _Encoder()
    out = encoder.head
    out += INT32.pack(correlation_id)
    flexible = version >= FLEXIBLE_FROM
    if flexible:
        out.append(0)
    out += INT32.pack(throttle_ms)
    if version >= _SESSIONS_FROM:
        out += INT16.pack(error_code)
        out += INT32.pack(session_id)
    out += varint(len(results) + 1) if flexible else INT32.pack(len(results))
    for key, partitions in results:
        encode_topic(out, key, len(partitions), flexible=flexible, by_id=version >= TOPIC_IDS_FROM)
        for fetched in partitions:
            if flexible:
                _encode_flexible(encoder, fetched)
            else:
                _encode_legacy(encoder, fetched, version)
            out = encoder.head
        if flexible:
            out.append(0)
    if flexible:
        out += node_endpoints(nodes)
    return encoder.finish()


def _encode_legacy(encoder: _Encoder, fetched: FetchedPartition, version: int) -> None:
    index, error_code, high_watermark, last_stable, log_start, records, aborted, _, _, preferred = fetched
    out = encoder.head
    if version >= 5:
        out += _ANSWER_V5.pack(index, error_code, high_watermark, last_stable, log_start)
    else:
        out += _ANSWER_V4.pack(index, error_code, high_watermark, last_stable)
    out += INT32.pack(-1 if aborted is None else len(aborted))
    for producer_id, first_offset in aborted or ():
        out += _ABORTED.pack(producer_id, first_offset)
    if version >= RACK_FROM:
        out += INT32.pack(preferred)
    out += INT32.pack(fetched.size)
    encoder.records(records)


def _encode_flexible(encoder: _Encoder, fetched: FetchedPartition) -> None:
    index, error_code, high_watermark, last_stable, log_start, records, aborted, diverging, leader, preferred = fetched
    out = encoder.head
    out += _ANSWER_V5.pack(index, error_code, high_watermark, last_stable, log_start)
    if aborted is None:
        out.append(0)
    else:
        out += varint(len(aborted) + 1)
        for producer_id, first_offset in aborted:
            out += _ABORTED.pack(producer_id, first_offset)
            out.append(0)
    out += INT32.pack(preferred)
    out += varint(fetched.size + 1)
    encoder.records(records)
    out = encoder.head
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:  # tagged field 0, 13 bytes
        out += b"\x00\x0d"
        out += _EPOCH_END.pack(*diverging)
        out.append(0)
    if leader is not None:
        out += b"\x01"
        out += leader_hint(leader)
