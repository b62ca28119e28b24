"""The hand-made paths of Produce say what kio says."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from tests.broker.frames import after_header, read_response, request_frame

from stratalog.broker.produce.produce_frames import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    PartitionResult,
    encode_produce,
    parse_produce,
)
from stratalog.errors import InvalidRequestError, RecordError
from stratalog.wire.api_keys import ApiKey

VERSIONS = st.integers(3, 13)
#: First version that names leaders.
HINTS_FROM = 10
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(min_size=1, max_size=200)
IDS = st.binary(min_size=16, max_size=16).filter(any)
#: Around the sizes at which a varint gets longer.
RECORDS = st.none() | st.binary(max_size=20) | st.sampled_from([126, 127, 128, 16_383, 16_384]).map(bytes)

REQUESTS = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | NAMES,
        "acks": st.integers(-1, 1),
        "timeout": st.integers(0, 2**31 - 1),
        "topics": st.lists(st.tuples(NAMES, IDS, st.lists(st.tuples(INT32, RECORDS), max_size=4)), max_size=4),
    }
)
BAD_BYTES = (InvalidRequestError, IndexError, struct.error)


def _kio_values(version: int, request: dict[str, Any]) -> dict[str, Any]:
    topics = []
    for name, topic_id, partitions in request["topics"]:
        key: dict[str, Any] = {"topic_id": UUID(bytes=topic_id)} if version >= TOPIC_IDS_FROM else {"name": name}
        entries = [{"index": index, "records": records} for index, records in partitions]
        topics.append({**key, "partition_data": entries})
    return {**{k: v for k, v in request.items() if k != "topics"}, "topic_data": topics}


@given(version=VERSIONS, request=REQUESTS)
@settings(deadline=None)
def test_parses_what_kio_writes(version: int, request: dict[str, Any]) -> None:
    frame = memoryview(request_frame(ApiKey.PRODUCE, version, _kio_values(version, request)))
    parsed = parse_produce(frame, after_header(frame, flexible=version >= FLEXIBLE_FROM), version)
    expected_id = request["transactional_id"]
    assert parsed.transactional_id == (None if expected_id is None else expected_id.encode())
    assert (parsed.acks, parsed.timeout_ms) == (request["acks"], request["timeout"])
    expected = [
        (
            topic_id if version >= TOPIC_IDS_FROM else name.encode(),
            [(index, records) for index, records in partitions],
        )
        for name, topic_id, partitions in request["topics"]
    ]
    found = [
        (
            key,
            [(entry.partition, None if entry.records is None else bytes(entry.records)) for entry in partitions],
        )
        for key, partitions in parsed.topics
    ]
    assert found == expected


@given(version=VERSIONS, request=REQUESTS, cut=st.integers(1, 10_000))
@settings(deadline=None)
def test_a_request_that_is_cut_off_is_refused(version: int, request: dict[str, Any], cut: int) -> None:
    frame = memoryview(request_frame(ApiKey.PRODUCE, version, _kio_values(version, request)))
    begin = after_header(frame, flexible=version >= FLEXIBLE_FROM)
    end = len(frame) - cut % (len(frame) - begin) - 1
    with pytest.raises(BAD_BYTES):
        parse_produce(frame[: max(end, begin)], begin, version)


@given(version=VERSIONS, noise=st.binary(max_size=300))
@settings(deadline=None)
def test_random_bytes_are_parsed_or_refused_and_nothing_else(version: int, noise: bytes) -> None:
    try:
        parsed = parse_produce(memoryview(bytearray(noise)), 0, version)
    except BAD_BYTES:
        return
    size = sum(len(entry.records or b"") for topic in parsed.topics for entry in topic.partitions)
    assert size <= len(noise)


def test_unknown_tagged_fields_are_passed_over() -> None:
    records = b"records"
    tags = b"\x02\x05\x03abc\x07\x00"  # two fields: 5 with "abc", 7 with nothing
    topic = b"\x02\x02t\x02" + struct.pack(">i", 3) + bytes([len(records) + 1]) + records + tags + tags
    message = b"\x00" + struct.pack(">hi", -1, 5000) + topic + tags
    parsed = parse_produce(memoryview(bytearray(message)), 0, FLEXIBLE_FROM)
    assert [(entry.partition, bytes(entry.records or b"")) for entry in parsed.topics[0].partitions] == [(3, records)]


def test_records_can_be_changed_in_place() -> None:
    frame = request_frame(
        ApiKey.PRODUCE,
        9,
        {"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"abc"}]}]},
    )
    view = memoryview(frame)
    records = parse_produce(view, after_header(view, flexible=True), 9).topics[0].partitions[0].records
    assert records is not None
    records[0:1] = b"X"
    assert b"Xbc" in frame


RESULTS = st.builds(
    PartitionResult,
    INT32,
    st.sampled_from([0, 2, 3, 10, 45, 87]),
    INT64,
    st.just(-1) | st.integers(0, 2**41),
    INT64,
    st.none() | st.text(max_size=200),
    st.lists(st.builds(RecordError, st.integers(0, 2**31 - 1), st.none() | st.text(max_size=200)), max_size=3),
    st.none() | st.tuples(INT32, INT32),
)
NODES = st.lists(st.tuples(INT32, NAMES, INT32, st.none() | NAMES), max_size=3)


@given(
    version=VERSIONS,
    topics=st.lists(st.tuples(NAMES, IDS, st.lists(RESULTS, max_size=4)), max_size=4),
    correlation_id=INT32,
    nodes=NODES,
)
@settings(deadline=None)
def test_kio_reads_what_is_encoded(
    version: int,
    topics: list[tuple[str, bytes, list[PartitionResult]]],
    correlation_id: int,
    nodes: list[tuple[int, str, int, str | None]],
) -> None:
    if version < HINTS_FROM:
        nodes, topics = (
            [],
            [(name, by_id, [each._replace(leader=None) for each in done]) for name, by_id, done in topics],
        )
    keyed = [(topic_id if version >= TOPIC_IDS_FROM else name.encode(), done) for name, topic_id, done in topics]
    frame = encode_produce(version, correlation_id, keyed, nodes=nodes)
    got_id, message = read_response(ApiKey.PRODUCE, version, bytes(frame))
    assert got_id == correlation_id
    assert len(message.responses) == len(topics)
    for topic, (name, topic_id, done) in zip(message.responses, topics, strict=True):
        if version >= TOPIC_IDS_FROM:
            assert topic.topic_id.bytes == topic_id
        else:
            assert topic.name == name
        for got, expected in zip(topic.partition_responses, done, strict=True):
            assert (got.index, got.error_code, got.base_offset) == expected[:3]
            append_time = got.log_append_time
            assert (-1 if append_time is None else round(append_time.timestamp() * 1000)) == expected.log_append_time_ms
            if version >= 5:
                assert got.log_start_offset == expected.log_start_offset
            if version >= 8:
                assert got.error_message == expected.error_message
                assert [
                    (entry.batch_index, entry.batch_index_error_message) for entry in got.record_errors
                ] == expected.record_errors
            if expected.leader is not None:
                assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == expected.leader
    if version >= HINTS_FROM:
        assert [(each.node_id, each.host, each.port, each.rack) for each in message.node_endpoints] == nodes
