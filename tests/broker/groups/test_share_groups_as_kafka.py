"""Share groups get the answers and the records that Apache Kafka 4.4.0 gives them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.broker.groups.modern_cases import Played, check_read_and_written_back, play
from tests.broker.groups.share_cases import CONFIG, run
from tests.golden.share_groups.make import ANSWERS, RECORDS
from tests.support.goldens import read_records

from stratalog.broker.groups.modern import GroupEpoch, TargetEpoch, TopicHashes
from stratalog.broker.groups.share.group import ShareGroup
from stratalog.broker.groups.share.heartbeat import update_target
from stratalog.broker.groups.share.records import decode_share_change, encode_share_change
from stratalog.broker.groups.share.surroundings import ShareGroupSettings, ShareSurroundings
from stratalog.broker.groups.share.values import ShareAssignment, ShareChangeKind, ShareGroupChange, StatePartitions
from stratalog.broker.groups.values import Moment
from stratalog.errors import CorruptRecordError

NO_HASHES = cast("TopicHashes", None)
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
    check_read_and_written_back(STORED, ShareChangeKind, decode_share_change, encode_share_change)


def _plain(records: list[tuple[bytes, bytes | None]]) -> dict[str, list[ShareGroupChange]]:
    """The changes of each group, without what differs from run to run: ids of topics, times and hashes."""
    changes: dict[str, list[ShareGroupChange]] = {}
    names: dict[UUID, str] = {}
    decoded = [found for key, value in records if (found := decode_share_change(key, value)) is not None]
    for _, change in decoded:
        if isinstance(change.value, StatePartitions):
            for held in (change.value.initializing, change.value.initialized):
                names.update({topic_id: topic.name for topic_id, topic in held.items()})
    for group_id, change in decoded:
        said: Any = change.value
        if isinstance(said, GroupEpoch):
            said = said.epoch, said.metadata_hash == 0
        elif change.kind is ShareChangeKind.TARGET_EPOCH and said is not None:
            said = said.epoch, said.timestamp_ms > 0
        elif isinstance(said, ShareAssignment):
            said = said.epoch, said.previous_epoch, said.state, _by_name(group_id, said.assigned, names)
        elif isinstance(said, StatePartitions):
            parts = [
                {topic.name: topic.partitions for topic in each.values()}
                for each in (said.initializing, said.initialized)
            ]
            said = parts, set(said.deleting.values())
        elif isinstance(said, dict):
            said = _by_name(group_id, said, names)
        changes.setdefault(group_id, []).append(ShareGroupChange(change.kind, change.name, said))
    return changes


def _by_name(group_id: str, target: Any, names: dict[UUID, str]) -> dict[str, Any]:
    """Name the topics; partitions are counted in the group where who gets which one follows from the ids of topics."""
    return {names[topic_id]: len(parts) if group_id == "life" else parts for topic_id, parts in target.items()}


def test_we_write_the_records_that_kafka_writes_in_its_order(played: Played) -> None:
    ours, kafkas = _plain(played[1]), _plain(STORED)
    assert set(ours) == set(kafkas)
    for group_id, changes in kafkas.items():
        assert ours[group_id] == changes, group_id


def test_a_group_is_read_back_as_it_was() -> None:
    """Whatever Kafka left in its log."""
    groups: dict[str, ShareGroup] = {}
    for key, value in STORED:
        found = decode_share_change(key, value)
        if found is not None:
            groups.setdefault(found[0], ShareGroup(found[0])).apply([found[1]], 0)
    last = groups["last"]
    assert set(last.members) == {"g"}
    assert last.target_epoch.epoch == last.epoch == last.members["g"].epoch
    assert not last.assignment_lags
    assert last.is_subscribed("one")
    assert not last.is_subscribed("six")
    assert groups["offsets"].is_gone


def test_we_assign_what_kafka_assigned() -> None:
    """From the same state of each group, with the same ids of topics, as they stand in Kafka's records."""
    groups: dict[str, ShareGroup] = {}
    batches: dict[str, list[ShareGroupChange]] = {}
    topics: dict[str, _Topics] = {}
    compared = 0
    for key, value in STORED:
        found = decode_share_change(key, value)
        if found is None:
            continue
        group_id, change = found
        group = groups.setdefault(group_id, ShareGroup(group_id))
        if isinstance(change.value, StatePartitions):
            topics.setdefault(group_id, _Topics()).learn(change.value)
        if change.kind in (ShareChangeKind.TARGET, ShareChangeKind.TARGET_EPOCH) and change.value is not None:
            batches.setdefault(group_id, []).append(change)
            if change.kind is ShareChangeKind.TARGET_EPOCH:
                compared += _compare(group, batches.pop(group_id), topics.setdefault(group_id, _Topics()))
            continue
        group.apply([change], 0)
    assert compared > 15


class _Topics:
    """The topics that there were for a group: as many partitions of each as had a state by then."""

    topics_version = new_topics_version = 1

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def learn(self, held: StatePartitions) -> None:
        now: dict[str, Any] = {}
        for part in (held.initializing, held.initialized):
            for topic_id, topic in part.items():
                known = self._known.get(topic.name)
                count = max(*topic.partitions, 0 if known is None else known.partition_count - 1) + 1
                now[topic.name] = SimpleNamespace(name=topic.name, topic_id=topic_id, partition_count=count)
        self._known = now

    def topics(self) -> list[Any]:
        return list(self._known.values())

    def topic(self, name: str) -> Any:
        return self._known.get(name)

    def topic_by_id(self, topic_id: UUID) -> Any:
        return next((each for each in self._known.values() if each.topic_id == topic_id), None)


def _compare(group: ShareGroup, written: list[ShareGroupChange], topics: _Topics) -> bool:
    """Compare a target that Kafka wrote with ours; False where the last member has gone, and nothing was computed."""
    epoch = written[-1].value
    assert isinstance(epoch, TargetEpoch)
    is_computed = epoch.timestamp_ms > 0
    if is_computed:
        around = ShareSurroundings(ShareGroupSettings(assignment_interval_ms=0), topics, NO_HASHES, Moment(1, 1))
        changes: list[ShareGroupChange] = []
        member = next(iter(group.members.values()))
        update_target(group, member, epoch.epoch, group.subscribers, around, changes)
        assert changes[:-1] == written[:-1], (group.group_id, epoch)
    group.apply(written, 0)
    return is_computed


@pytest.mark.parametrize("kind", ShareChangeKind)
def test_a_record_cut_anywhere_is_corrupt(kind: ShareChangeKind) -> None:
    key, value = next((key, value) for key, value in STORED if key[:2] == kind.to_bytes(2) and value is not None)
    for size in range(len(value)):
        with pytest.raises(CorruptRecordError):
            decode_share_change(key, value[:size])
