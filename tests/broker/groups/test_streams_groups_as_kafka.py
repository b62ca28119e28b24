"""Streams groups get the answers and the records that Apache Kafka 4.4.0 gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.broker.groups.modern_cases import Played, check_read_and_written_back, play
from tests.broker.groups.streams_cases import CONFIG, endpoint_without_topics, run
from tests.golden.streams_groups.make import ANSWERS, RECORDS
from tests.support.goldens import read_records

from stratalog.broker.groups.streams.group import StreamsGroup
from stratalog.broker.groups.streams.records import decode_streams_change, encode_streams_change
from stratalog.broker.groups.streams.values import (
    CurrentTasks,
    MemberFacts,
    StreamsChangeKind,
    StreamsGroupChange,
    StreamsGroupEpoch,
    Tasks,
)
from stratalog.broker.server.server import Broker
from stratalog.errors import CorruptRecordError

KAFKA: dict[str, Any] = json.loads(ANSWERS.read_text())
STORED = read_records(RECORDS)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Our answers, and the records behind them."""
    return play(tmp_path_factory.mktemp("data"), CONFIG, run)


@pytest.mark.parametrize("step", KAFKA)
def test_the_answer_is_kafkas(played: Played, step: str) -> None:
    assert played[0][step] == KAFKA[step]


def test_no_step_is_left_out(played: Played) -> None:
    assert list(played[0]) == list(KAFKA)


def test_kafkas_records_are_read_and_written_back_byte_for_byte() -> None:
    check_read_and_written_back(STORED, StreamsChangeKind, decode_streams_change, encode_streams_change)


def _plain(records: list[tuple[bytes, bytes | None]]) -> dict[str, list[StreamsGroupChange]]:
    """The changes of each group, without times and hashes, which differ from run to run."""
    changes: dict[str, list[StreamsGroupChange]] = {}
    for key, value in records:
        found = decode_streams_change(key, value)
        if found is None:
            continue
        group_id, change = found
        said: Any = change.value
        if isinstance(said, StreamsGroupEpoch):
            said = said.epoch, said.validated_topology, said.assignment_configs
        elif change.kind is StreamsChangeKind.TARGET_EPOCH and said is not None:
            said = said.epoch, said.timestamp_ms > 0
        changes.setdefault(group_id, []).append(StreamsGroupChange(change.kind, change.name, said))
    return changes


def test_we_write_the_records_that_kafka_writes_in_its_order(played: Played) -> None:
    ours, kafkas = _plain(played[1]), _plain(STORED)
    assert set(ours) == set(kafkas)
    for group_id, changes in kafkas.items():
        assert ours[group_id] == changes, group_id


def test_a_group_is_read_back_as_it_was() -> None:
    """Whatever Kafka left in its log."""
    groups: dict[str, StreamsGroup] = {}
    for key, value in STORED:
        found = decode_streams_change(key, value)
        if found is not None:
            groups.setdefault(found[0], StreamsGroup(found[0])).apply([found[1]])
    life = groups["life"]
    assert set(life.members) == {"d"}
    assert life.target_epoch.epoch == life.epoch == life.members["d"].epoch
    assert life.active_process("1", 3) == "process-d"
    assert life.is_subscribed("in")
    assert not life.is_subscribed("other")
    assert groups["standby"].standby_processes("1", 2) == {"process-a"}


@pytest.mark.parametrize("kind", StreamsChangeKind)
def test_a_record_cut_anywhere_is_corrupt(kind: StreamsChangeKind) -> None:
    key, value = next((key, value) for key, value in STORED if key[:2] == kind.to_bytes(2) and value is not None)
    for size in range(len(value)):
        with pytest.raises(CorruptRecordError):
            decode_streams_change(key, value[:size])


def test_a_member_with_an_endpoint_is_reported_which_topics_lack() -> None:
    """Kafka has an UNKNOWN_SERVER_ERROR for it: its list of endpoints needs the topics."""
    with Broker(config=CONFIG) as broker:
        (answer,) = run(broker.bootstrap_servers, [endpoint_without_topics]).values()
    assert answer["error_code"] == 0
    assert [each["status_code"] for each in answer["status"]] == [1]
    assert answer["partitions_by_user_endpoint"] == [
        {"user_endpoint": {"host": "h1", "port": 50000}, "active_partitions": [], "standby_partitions": []}
    ]


def test_what_is_not_said_is_left_out_of_records() -> None:
    none = StreamsGroupChange(StreamsChangeKind.GROUP, value=StreamsGroupEpoch(7, 5))
    assert encode_streams_change("g", none)[1] == b"\0\0" + b"\0\0\0\7" + b"\0" * 7 + b"\5" + b"\0"
    facts = StreamsGroupChange(StreamsChangeKind.MEMBER, "m", MemberFacts())
    for change in (none, facts, StreamsGroupChange(StreamsChangeKind.TARGET, "m", Tasks())):
        assert decode_streams_change(*encode_streams_change("g", change)) == ("g", change)
    current = StreamsGroupChange(StreamsChangeKind.CURRENT, "m", CurrentTasks(state=CurrentTasks().state))
    assert decode_streams_change(*encode_streams_change("g", current)) == ("g", current)
