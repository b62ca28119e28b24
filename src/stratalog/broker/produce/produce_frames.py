"""Produce requests and responses as bytes, versions 3 to 13; kio is the oracle of both in the tests.

    request:  [transactional id] acks int16, timeout int32, topics[ name (v13: id) , partitions[ index int32, records ]
    ] response: topics[ name (v13: id), partitions[ index int32, error int16, base offset int64, log append time int64,
              v5+: log start offset int64, v8+: record errors[], error message ] ], throttle int32

Versions from 9 on are flexible: lengths are varints of length + 1, and every struct ends with tagged fields.
Source: ProduceRequest.json, ProduceResponse.json of Kafka 4.4.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from stratalog.broker.frame_fields import (
    compact_length,
    compact_text,
    encode_topic,
    flexible_topic,
    leader_hint,
    legacy_topic,
    node_endpoints,
    varint,
)
from stratalog.errors import InvalidRequestError, KafkaError, RecordError
from stratalog.wire import INT16, INT32, skip_tagged_fields

FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13

_LOG_START_OFFSET_FROM = 5
_ERROR_MESSAGE_FROM = 8

_ACKS_TIMEOUT = struct.Struct(">hi")
_INDEX_LENGTH = struct.Struct(">ii")
_RESULT = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")


class ProducedPartition(NamedTuple):
    """Records for one partition; `records` is a writable view into the request, None for null.

    `refusal` is the answer whether or not the records are appended: the request has other, invalid ones for the same
    partition.
    """

    partition: int
    records: memoryview | None
    refusal: KafkaError | None = None


class ProducedTopic(NamedTuple):
    """`key` is the topic as in the request: its name in UTF-8, or the 16 bytes of its id."""

    key: bytes
    partitions: list[ProducedPartition]


class ProduceRequest(NamedTuple):
    transactional_id: bytes | None
    acks: int
    timeout_ms: int
    topics: list[ProducedTopic]


class PartitionResult(NamedTuple):
    """The result for one partition; offsets are -1 with an error."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[RecordError] = ()
    #: Id and epoch of the leader, if this broker is not the leader.
    leader: tuple[int, int] | None = None


def parse_produce(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """Parse from `position`, after the request header. InvalidRequestError, IndexError or struct.error if invalid."""
    if version < FLEXIBLE_FROM:
        return _parse_legacy(frame, position)
    return _parse_flexible(frame, position, version)


def _parse_legacy(frame: memoryview, position: int) -> ProduceRequest:
    end = len(frame)
    int16, int32, index_length = INT16.unpack_from, INT32.unpack_from, _INDEX_LENGTH.unpack_from
    transactional_id = None
    (length,) = int16(frame, position)
    position += 2
    if length >= 0:
        transactional_id = bytes(frame[position : position + length])
        position += length
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    position += 6
    topics = []
    (topic_count,) = int32(frame, position)
    position += 4
    for _ in range(topic_count):
        name, partition_count, position = legacy_topic(frame, position)
        partitions = []
        for _ in range(partition_count):
            index, length = index_length(frame, position)
            position += 8
            if length < 0:
                partitions.append(ProducedPartition(index, None))
                continue
            if position + length > end:
                raise InvalidRequestError("records run beyond the end of the request")
            partitions.append(ProducedPartition(index, frame[position : position + length]))
            position += length
        topics.append(ProducedTopic(name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _parse_flexible(frame: memoryview, position: int, version: int) -> ProduceRequest:
    end = len(frame)
    int32 = INT32.unpack_from
    transactional_id = None
    length, position = compact_length(frame, position)
    if length >= 0:
        transactional_id = bytes(frame[position : position + length])
        position += length
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    position += 6
    topics = []
    topic_count, position = compact_length(frame, position)
    for _ in range(topic_count):
        key, partition_count, position = flexible_topic(frame, position, version >= TOPIC_IDS_FROM)
        partitions = []
        for _ in range(partition_count):
            (index,) = int32(frame, position)
            length, position = compact_length(frame, position + 4)
            if length < 0:
                partitions.append(ProducedPartition(index, None))
            else:
                if position + length > end:
                    raise InvalidRequestError("records run beyond the end of the request")
                partitions.append(ProducedPartition(index, frame[position : position + length]))
                position += length
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
        position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
        topics.append(ProducedTopic(key, partitions))
    skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def once_each(
    topics: list[ProducedTopic], refusal_of: Callable[[bytes, ProducedPartition], KafkaError | None]
) -> list[ProducedTopic]:
    """Return the topics with each partition once, as Kafka's maps have it: the last valid records win.

    `refusal_of` returns the error for invalid records; that of the last ones is the answer for the partition. A topic
    without partitions is left out.
    """
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return topics
    found: dict[bytes, dict[int, ProducedPartition]] = {}
    for key, partitions in topics:
        if partitions:
            kept = found.setdefault(key, {})
            for entry in partitions:
                before = kept.get(entry.partition)
                kept[entry.partition] = entry if before is None else _both(before, entry, partial(refusal_of, key))
    return [ProducedTopic(key, list(partitions.values())) for key, partitions in found.items()]


def _both(
    before: ProducedPartition, entry: ProducedPartition, refusal_of: Callable[[ProducedPartition], KafkaError | None]
) -> ProducedPartition:
    """Return what is to be done with two entries for one partition."""
    refused = refusal_of(entry)
    if refused is None:
        earlier = before.refusal or refusal_of(before)
        return entry._replace(refusal=earlier)
    return before._replace(refusal=refused) if refusal_of(before) is None else entry


def encode_produce(
    version: int,
    correlation_id: int,
    results: Sequence[tuple[bytes, Sequence[PartitionResult]]],
    throttle_ms: int = 0,
    nodes: Sequence[tuple[int, str, int, str | None]] = (),
) -> bytearray:
    """Return a complete response frame; each topic by its key in the request.

    `nodes` are the leaders in the results, from version 10 on.
    """
    out = bytearray(8)
    INT32.pack_into(out, 4, correlation_id)
    flexible = version >= FLEXIBLE_FROM
    if flexible:
        out.append(0)
        out += varint(len(results) + 1)
    else:
        out += INT32.pack(len(results))
    for key, partitions in results:
        encode_topic(out, key, len(partitions), flexible=flexible, by_id=version >= TOPIC_IDS_FROM)
        for result in partitions:
            if version >= _LOG_START_OFFSET_FROM:
                out += _RESULT_V5.pack(*result[:5])
            else:
                out += _RESULT.pack(*result[:4])
            if flexible:
                _encode_errors_flexible(out, result)
            elif version >= _ERROR_MESSAGE_FROM:
                _encode_errors_legacy(out, result)
        if flexible:
            out.append(0)
    out += INT32.pack(throttle_ms)
    if flexible:
        out += node_endpoints(nodes)
    INT32.pack_into(out, 0, len(out) - 4)
    return out


def _encode_errors_flexible(out: bytearray, result: PartitionResult) -> None:
    message = result.error_message
    if message is None and not result.record_errors and result.leader is None:
        out += b"\x01\x00\x00"  # no record errors, null message, no tagged fields
        return
    out += varint(len(result.record_errors) + 1)
    for number, why in result.record_errors:
        out += INT32.pack(number) + compact_text(why) + b"\x00"
    out += compact_text(message)
    if result.leader is None:
        out.append(0)
    else:  # tagged field 0
        out += b"\x01\x00"
        out += leader_hint(result.leader)


def _encode_errors_legacy(out: bytearray, result: PartitionResult) -> None:
    out += INT32.pack(len(result.record_errors))
    for number, why in result.record_errors:
        out += INT32.pack(number)
        _put_text(out, why)
    _put_text(out, result.error_message)


def _put_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out += b"\xff\xff"
    else:
        data = text.encode()
        out += INT16.pack(len(data))
        out += data
