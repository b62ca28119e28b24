"""`__consumer_offsets`: our bytes are Kafka's bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st
from tests.broker.groups.scenario import play
from tests.golden.groups.make import GOLDEN
from tests.support.consumer_offsets import StoredRecord, stored_records
from tests.support.reference_kafka import ReferenceKafka, require_reference_kafka

from stratalog.broker.coordinator_log import partition_for
from stratalog.broker.groups import records
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.records import (
    GroupKey,
    OffsetKey,
    decode_any_key,
    decode_any_offset_value,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from stratalog.broker.groups.values import GroupMetadata, MemberMetadata
from stratalog.broker.server.server import Broker
from stratalog.errors import CorruptRecordError

PARTITIONS = 50
ANY_ID = UUID(int=1)


def kafkas_records() -> list[StoredRecord]:
    return [
        (partition, bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        for partition, key, value in json.loads(GOLDEN.read_text())
    ]


@pytest.mark.parametrize(("partition", "key", "value"), kafkas_records())
def test_what_kafka_wrote_decodes_and_encodes_to_the_same_bytes(
    partition: int, key: bytes, value: bytes | None
) -> None:
    decoded = decode_key(key)
    if isinstance(decoded, OffsetKey):
        assert encode_offset_key(decoded) == key
        assert value is None or encode_offset_value(decode_offset_value(value)) == value
    else:
        assert isinstance(decoded, GroupKey)
        assert encode_group_key(decoded) == key
        assert value is None or encode_group_value(decode_group_value(value)) == value
    assert partition_for(decoded.group_id, PARTITIONS) == partition


def alike(records: Iterable[StoredRecord]) -> list[tuple[int, Any, Any]]:
    """Records with everything that differs from run to run taken out: ids get numbers in order of appearance.

    Members are a set here: Kafka writes them in the order of a Java HashMap over their random ids, we in that of
    joining.
    """
    names: dict[str, str] = {}

    def name(member_id: str) -> str:
        prefix = member_id[:-36]
        return names.setdefault(member_id, f"{prefix}{len(names)}") if prefix else member_id

    out = []
    for partition, key, value in records:
        decoded = decode_key(key)
        content: Any = None
        if isinstance(decoded, OffsetKey) and value is not None:
            commit = decode_offset_value(value)
            assert commit.commit_timestamp_ms > 1_600_000_000_000
            expiry = commit.expire_timestamp_ms and commit.expire_timestamp_ms - commit.commit_timestamp_ms
            topic_id = commit.topic_id and ANY_ID
            content = replace(commit, commit_timestamp_ms=0, expire_timestamp_ms=expiry, topic_id=topic_id)
        elif value is not None:
            group = decode_group_value(value)
            assert group.state_timestamp_ms > 1_600_000_000_000
            sorted_members = sorted(group.members, key=lambda member: member.client_id)
            members = tuple(replace(member, member_id=name(member.member_id)) for member in sorted_members)
            leader = group.leader and name(group.leader)
            content = replace(group, state_timestamp_ms=0, members=members, leader=leader)
        out.append((partition, decoded, content))
    return out


def test_the_same_requests_leave_the_same_records_as_kafka(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config={"group.initial.rebalance.delay.ms": "0"}) as broker:
        play(broker.bootstrap_servers)
    assert alike(stored_records(tmp_path)) == alike(kafkas_records())


@pytest.mark.interop
def test_the_golden_is_what_kafka_writes_today(tmp_path: Path) -> None:
    require_reference_kafka()
    with ReferenceKafka(tmp_path, config={"offsets.topic.num.partitions": str(PARTITIONS)}) as kafka:
        play(kafka.bootstrap_servers)
    assert alike(stored_records(kafka.data_dir)) == alike(kafkas_records())


# --- partitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),  # the one whose absolute value does not fit
        ("console-consumer-12345", 158455506),
        ("gr\u00fcppe", -1233264812),
        ("\U0001f600", 1772899),
    ],
)
def test_a_group_goes_to_the_partition_that_java_gives_it(group: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % PARTITIONS
    assert partition_for(group, PARTITIONS) == expected


# --- versions and damage ----------------------------------------------------------------------------------------------

COMMIT = CommittedOffset(42, "meta", 1_700_000_000_000, leader_epoch=3)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 000000000000002a 0004 6d657461 0000018bcfe56800", replace(COMMIT, leader_epoch=-1)),
        (
            "0001 000000000000002a 0004 6d657461 0000018bcfe56800 0000018bcfe56801",
            replace(COMMIT, leader_epoch=-1, expire_timestamp_ms=1_700_000_000_001),
        ),
        (
            "0001 000000000000002a 0004 6d657461 0000018bcfe56800 ffffffffffffffff",
            replace(COMMIT, leader_epoch=-1),
        ),
        ("0002 000000000000002a 0004 6d657461 0000018bcfe56800", replace(COMMIT, leader_epoch=-1)),
        ("0003 000000000000002a 00000003 0004 6d657461 0000018bcfe56800", COMMIT),
        ("0004 000000000000002a 00000003 05 6d657461 0000018bcfe56800 00", COMMIT),
        ("0004 000000000000002a 00000003 05 6d657461 0000018bcfe56800 01 07 02 ffff", COMMIT),
    ],
)
def test_commits_of_every_version_are_read(value: str, expected: CommittedOffset) -> None:
    assert decode_offset_value(bytes.fromhex(value)) == expected


def test_a_commit_whose_topic_is_not_known_is_written_in_version_3() -> None:
    assert encode_offset_value(COMMIT).hex(" ", 2).startswith("0003")
    assert decode_offset_value(encode_offset_value(COMMIT)) == COMMIT


def test_group_metadata_of_older_versions_is_read() -> None:
    member = "0002 6d31 0001 63 0002 2f68 {rebalance} 00002710 00000001 aa 00000001 bb"
    head = "{version} 0008 636f6e73756d6572 00000005 0005 72616e6765 0002 6d31 {state}"
    for version, rebalance, state in ((0, "", ""), (1, "00007530", ""), (2, "00007530", "0000018bcfe56800")):
        text = head.format(version=f"{version:04x}", state=state) + "00000001" + member.format(rebalance=rebalance)
        group = decode_group_value(bytes.fromhex(text.replace(" ", "")))
        assert group == GroupMetadata(
            "consumer",
            5,
            "range",
            "m1",
            1_700_000_000_000 if version == 2 else -1,
            (MemberMetadata("m1", None, "c", "/h", 30_000 if version else -1, 10_000, b"\xaa", b"\xbb"),),
        )


def test_keys_of_other_kinds_of_groups_are_passed_over() -> None:
    assert decode_key(b"\x00\x03\x00\x01g") is None


@pytest.mark.parametrize("value", [value for _, key, value in kafkas_records() if value and key[1] == 1][:3])
def test_a_commit_cut_short_anywhere_is_refused(value: bytes) -> None:
    for length in range(len(value)):
        with pytest.raises(CorruptRecordError):
            decode_offset_value(value[:length])


@pytest.mark.parametrize("value", [value for _, key, value in kafkas_records() if value and key[1] == 2][1:3])
def test_group_metadata_cut_short_anywhere_is_refused(value: bytes) -> None:
    for length in range(len(value)):
        with pytest.raises(CorruptRecordError):
            decode_group_value(value[:length])


@pytest.mark.parametrize(
    "value",
    [b"\x00\x05" + bytes(40), b"\xff\xff" + bytes(40), b"\x00\x03" + bytes(12) + b"\xff\xff" + bytes(8)],
)
def test_versions_of_the_future_and_null_metadata_are_refused(value: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_offset_value(value)


# --- properties -------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
blobs = st.binary(max_size=30)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)

commits = st.builds(
    CommittedOffset,
    int64,
    texts,
    int64,
    leader_epoch=int32,
    expire_timestamp_ms=st.none(),
    topic_id=st.none() | st.uuids(),
) | st.builds(CommittedOffset, int64, texts, int64, expire_timestamp_ms=int64)
members = st.builds(MemberMetadata, texts, st.none() | texts, texts, texts, int32, int32, blobs, blobs)
groups = st.builds(
    GroupMetadata,
    texts,
    int32,
    st.none() | texts,
    st.none() | texts,
    int64,
    st.lists(members, max_size=3).map(tuple),
)


@given(commits)
@settings(deadline=None)
def test_every_commit_comes_back_as_it_was(commit: CommittedOffset) -> None:
    assert decode_offset_value(encode_offset_value(commit)) == commit


@given(commits, texts, texts, int32, st.data())
@settings(deadline=None)
def test_the_short_way_reads_what_the_plain_one_reads_or_nothing(
    commit: CommittedOffset, group: str, topic: str, partition: int, data: st.DataObject
) -> None:
    """Also of bytes that are damaged in any place: then it may say nothing, but nothing else."""
    value, key = (
        encode_offset_value(commit),
        encode_offset_key(OffsetKey(group, TopicPartition(topic, partition))),
    )
    assert records._usual_offset_key(key) == decode_any_key(key)
    is_usual = value[:2] == b"\0\4" and len(commit.metadata.encode()) < 127
    assert records._usual_offset_value(value) == (decode_any_offset_value(value) if is_usual else None)
    for whole, usual, plain in (
        (key, records._usual_offset_key, decode_any_key),
        (value, records._usual_offset_value, decode_any_offset_value),
    ):
        damaged = bytearray(whole)
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
        cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
        for tried in (bytes(damaged), cut, whole + b"\0"):
            found = usual(tried)
            assert found is None or found == plain(tried)


@given(groups)
@settings(deadline=None)
def test_every_group_comes_back_as_it_was(group: GroupMetadata) -> None:
    assert decode_group_value(encode_group_value(group)) == group


@given(texts, texts, int32)
@settings(deadline=None)
def test_every_key_comes_back_as_it_was(group: str, topic: str, partition: int) -> None:
    key = OffsetKey(group, TopicPartition(topic, partition))
    assert decode_key(encode_offset_key(key)) == key
    assert decode_key(encode_group_key(GroupKey(group))) == GroupKey(group)


@given(st.binary(max_size=120))
@settings(deadline=None)
def test_arbitrary_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        try:
            decode(data)
        except CorruptRecordError:
            continue
