"""The hand-made paths of Fetch say what kio says."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.broker.frames import after_header, joined, read_response, request_frame

from stratalog.broker.fetch.fetch_frames import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    FetchedPartition,
    encode_fetch,
    parse_fetch,
)
from stratalog.errors import InvalidRequestError
from stratalog.log.format.values import FileSlice
from stratalog.util.filesystem import REAL_FILESYSTEM
from stratalog.wire.api_keys import ApiKey

VERSIONS = st.integers(4, 18)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(min_size=1, max_size=200)
IDS = st.binary(min_size=16, max_size=16).filter(any)
BAD_BYTES = (InvalidRequestError, IndexError, struct.error)

PARTITIONS = st.fixed_dictionaries(
    {
        "partition": INT32,
        "current_leader_epoch": INT32,
        "fetch_offset": INT64,
        "last_fetched_epoch": INT32,
        "log_start_offset": INT64,
        "partition_max_bytes": INT32,
        "replica_directory_id": st.none() | IDS.map(lambda raw: UUID(bytes=raw)),
    }
)
REQUESTS = st.fixed_dictionaries(
    {
        "replica_id": INT32,
        "max_wait": st.integers(0, 2**31 - 1),
        "min_bytes": INT32,
        "max_bytes": INT32,
        "isolation_level": st.integers(0, 1),
        "session_id": INT32,
        "session_epoch": INT32,
        "topics": st.lists(st.tuples(NAMES, IDS, st.lists(PARTITIONS, max_size=3)), max_size=3),
        "forgotten": st.lists(st.tuples(NAMES, IDS, st.lists(INT32, max_size=3)), max_size=3),
        "rack_id": st.text(max_size=150),
        "cluster_id": st.none() | st.text(max_size=20),
    }
)
#: First version of each field that not all versions have.
SINCE = {
    "session_id": 7,
    "session_epoch": 7,
    "rack_id": 11,
    "cluster_id": 12,
    "current_leader_epoch": 9,
    "last_fetched_epoch": 12,
    "log_start_offset": 5,
    "replica_directory_id": 17,
}


def _has(version: int, field: str) -> bool:
    return version >= SINCE.get(field, 0)


def _kio_values(version: int, request: dict[str, Any]) -> dict[str, Any]:
    by_id = version >= TOPIC_IDS_FROM
    values = {
        name: value
        for name, value in request.items()
        if name not in ("topics", "forgotten", "replica_id") and _has(version, name)
    }
    values["topics"] = [
        {
            **({"topic_id": UUID(bytes=topic_id)} if by_id else {"topic": name}),
            "partitions": [{k: v for k, v in entry.items() if _has(version, k)} for entry in partitions],
        }
        for name, topic_id, partitions in request["topics"]
    ]
    if version >= 7:
        values["forgotten_topics_data"] = [
            {**({"topic_id": UUID(bytes=topic_id)} if by_id else {"topic": name}), "partitions": numbers}
            for name, topic_id, numbers in request["forgotten"]
        ]
    if version >= 15:
        values["replica_state"] = {"replica_id": request["replica_id"], "replica_epoch": 5}
    else:
        values["replica_id"] = request["replica_id"]
    return values


@given(version=VERSIONS, request=REQUESTS)
@settings(deadline=None)
def test_parses_what_kio_writes(version: int, request: dict[str, Any]) -> None:
    frame = memoryview(request_frame(ApiKey.FETCH, version, _kio_values(version, request)))
    parsed = parse_fetch(frame, after_header(frame, flexible=version >= FLEXIBLE_FROM), version)
    assert parsed.replica_id == request["replica_id"]
    if version >= 15 and parsed.replica_id >= 0:
        assert parsed.replica_epoch == 5
    assert parsed.max_wait_ms == request["max_wait"]
    assert (parsed.min_bytes, parsed.max_bytes) == (request["min_bytes"], request["max_bytes"])
    assert parsed.isolation_level == request["isolation_level"]
    assert parsed.rack == (request["rack_id"] if version >= 11 else "")
    if version >= 7:
        assert (parsed.session_id, parsed.session_epoch) == (request["session_id"], request["session_epoch"])
    else:
        assert (parsed.session_id, parsed.session_epoch) == (0, -1)
    expected = [
        (
            topic_id if version >= TOPIC_IDS_FROM else name.encode(),
            [
                (
                    entry["partition"],
                    entry["current_leader_epoch"] if version >= 9 else -1,
                    entry["fetch_offset"],
                    entry["last_fetched_epoch"] if version >= 12 else -1,
                    entry["partition_max_bytes"],
                    entry["log_start_offset"] if version >= 5 else -1,
                )
                for entry in partitions
            ],
        )
        for name, topic_id, partitions in request["topics"]
    ]
    assert [(key, [tuple(entry) for entry in partitions]) for key, partitions in parsed.topics] == expected


@given(version=VERSIONS, noise=st.binary(max_size=300))
@settings(deadline=None)
def test_random_bytes_are_parsed_or_refused_and_nothing_else(version: int, noise: bytes) -> None:
    try:
        parsed = parse_fetch(memoryview(bytearray(noise)), 0, version)
    except BAD_BYTES:
        return
    assert sum(len(topic.partitions) for topic in parsed.topics) <= len(noise)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_request_that_is_cut_off_within_its_topics_is_refused(version: int) -> None:
    entry = {"partition": 1, "fetch_offset": 2, "partition_max_bytes": 3}
    topic = {"topic_id": UUID(int=5)} if version >= TOPIC_IDS_FROM else {"topic": "name"}
    values = {
        "max_wait": 1,
        "min_bytes": 1,
        "max_bytes": 1,
        "topics": [{**topic, "partitions": [entry, entry]}],
    }
    frame = memoryview(request_frame(ApiKey.FETCH, version, values))
    begin = after_header(frame, flexible=version >= FLEXIBLE_FROM)
    tail = 8  # forgotten topics, rack and tagged fields may be missing in a legacy request
    for end in range(begin, len(frame) - tail):
        with pytest.raises(BAD_BYTES):
            parse_fetch(frame[:end], begin, version)


FETCHED = st.builds(
    FetchedPartition,
    INT32,
    st.sampled_from([0, 1, 3, 74]),
    INT64,
    INT64,
    INT64,
    st.binary(max_size=20) | st.sampled_from([127, 128, 5_000, 20_000]).map(bytes),
    st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    st.none() | st.tuples(INT32, INT64),
    st.none() | st.tuples(INT32, INT32),
    INT32,
)

NODES = st.lists(st.tuples(INT32, NAMES, INT32, st.none() | NAMES), max_size=3)


@given(
    version=VERSIONS,
    topics=st.lists(st.tuples(NAMES, IDS, st.lists(FETCHED, max_size=3)), max_size=3),
    from_file=st.booleans(),
    error_code=st.sampled_from([0, 70]),
    nodes=NODES,
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_kio_reads_what_is_encoded(
    tmp_path: Path,
    version: int,
    topics: list[tuple[str, bytes, list[FetchedPartition]]],
    from_file: bool,
    error_code: int,
    nodes: list[tuple[int, str, int, str | None]],
) -> None:
    records = {id(entry): entry.records for _, _, done in topics for entry in done}
    keyed = []
    with REAL_FILESYSTEM.open(tmp_path / "segment", create=True) as file:
        file.truncate(0)
        for name, topic_id, done in topics:
            entries = []
            for entry in done:
                assert isinstance(entry.records, bytes)
                if from_file:
                    begin = file.size()
                    file.write_at(entry.records, begin)
                    entries.append(entry._replace(records=FileSlice(file, begin, len(entry.records))))
                else:
                    entries.append(entry)
            keyed.append((topic_id if version >= TOPIC_IDS_FROM else name.encode(), entries))
        frame = joined(encode_fetch(version, 9, keyed, error_code=error_code, nodes=nodes if version >= 16 else ()))
    correlation_id, message = read_response(ApiKey.FETCH, version, frame)
    assert correlation_id == 9
    if version >= 7:
        assert (message.error_code, message.session_id) == (error_code, 0)
    for topic, (name, topic_id, done) in zip(message.responses, topics, strict=True):
        if version >= TOPIC_IDS_FROM:
            assert topic.topic_id.bytes == topic_id
        else:
            assert topic.topic == name
        for got, expected in zip(topic.partitions, done, strict=True):
            assert (
                got.partition_index,
                got.error_code,
                got.high_watermark,
                got.last_stable_offset,
            ) == expected[:4]
            assert (got.records or b"") == records[id(expected)]
            if version >= 5:
                assert got.log_start_offset == expected.log_start_offset
            aborted = got.aborted_transactions
            pairs = None if aborted is None else [(entry.producer_id, entry.first_offset) for entry in aborted]
            assert pairs == expected.aborted
            if version >= 11:
                assert got.preferred_read_replica == expected.preferred
            if version >= 12 and expected.diverging is not None:
                assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == expected.diverging
            if version >= 12 and expected.leader is not None:
                assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == expected.leader
    if version >= 16:
        assert [(each.node_id, each.host, each.port, each.rack) for each in message.node_endpoints] == nodes
