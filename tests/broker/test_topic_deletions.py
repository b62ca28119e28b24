"""What groups have committed goes with its topic: a new topic of the name begins without, whatever happens on the
way."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.broker.groups.scenario import await_coordinator, commit
from tests.support.waiting import wait_until
from tests.support.wire import Wire
from tests.support.work import lines_of_work

from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.records import OffsetKey, encode_offset_key, encode_offset_value
from stratalog.broker.server.server import Broker
from stratalog.errors import KafkaStorageError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util.uuids import random_uuid
from stratalog.wire.api_keys import ApiKey

T = TypeVar("T")
TOPIC = "orders"
CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
GROUPS = [f"group-{number}" for number in range(8)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path / "data", config=CONFIG) as broker:
        yield broker


def commit_all(broker: Broker) -> None:
    """Commits of several groups, for a fresh topic; one of them with an expiry of its own, which stores no topic id."""
    with Wire(broker.bootstrap_servers) as wire:
        await_coordinator(wire)
        broker.services.topics.create(TOPIC, 3)
        for group in GROUPS:
            assert commit(wire, 8, group, {0: (10, ""), 2: (20, "")}) == [0, 0]
        assert commit(wire, 4, "expiring", {1: (30, "")}, retention_time=86_400_000) == [0]


def delete(broker: Broker) -> int:
    with Wire(broker.bootstrap_servers) as wire:
        answer = wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=(TOPIC,), timeout=30_000)
        return int(answer.responses[0].error_code)


def found(broker: Broker) -> list[int]:
    """What groups have for the topic, asked by name, for all topics, and by id."""
    topic = broker.services.metadata.topic(TOPIC)
    asked = {"partition_indexes": (0, 1, 2)}
    offsets: list[int] = []
    with Wire(broker.bootstrap_servers) as wire:
        for group in (*GROUPS, "expiring"):
            calls: list[tuple[int, Any]] = [(9, [{"name": TOPIC, **asked}]), (9, None)]
            if topic is not None:
                calls.append((10, [{"topic_id": topic.topic_id, **asked}]))
            for version, topics in calls:
                answer = wire.call(ApiKey.OFFSET_FETCH, version, groups=[{"group_id": group, "topics": topics}])
                offsets += [part.committed_offset for of in answer.groups[0].topics for part in of.partitions]
    return [offset for offset in offsets if offset != -1]


def test_a_deletion_goes_on_when_its_client_goes(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_all(broker)
    assert found(broker)
    begun, gone = threading.Event(), threading.Event()
    deleted = broker.services.logs.delete_topic

    def delete_when_the_client_is_gone(name: str) -> None:
        begun.set()
        assert gone.wait(30)
        deleted(name)

    monkeypatch.setattr(broker.services.logs, "delete_topic", delete_when_the_client_is_gone)
    wire = Wire(broker.bootstrap_servers)
    wire.send(ApiKey.DELETE_TOPICS, 5, topic_names=(TOPIC,), timeout=30_000)
    assert begun.wait(30)
    wire.close()
    with Wire(broker.bootstrap_servers) as other:  # the loop has seen the end of the other connection before this one
        other.call(ApiKey.LIST_GROUPS, 0)
    gone.set()
    wait_until(lambda: not broker.services.store.deleting_topics(), "the deletion is finished")
    broker.services.topics.create(TOPIC, 3)
    assert found(broker) == []


class Killed:
    """Copies of the data directory as a process killed at each step of a deletion would leave it."""

    def __init__(self, broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.copies: list[Path] = []
        self._data = directory / "data"
        self._directory = directory
        state = broker.services
        for owner, name in (
            (state.metadata, "begin_delete_topic"),
            (state.logs, "delete_topic"),
            (state.groups.log, "append_to"),
            *((partition.log, "flush") for partition in state.logs.partitions("__consumer_offsets")),
            (state.metadata, "finish_delete_topic"),
        ):
            monkeypatch.setattr(owner, name, self._between(name, getattr(owner, name)))

    def _between(self, name: str, step: Callable[..., T]) -> Callable[..., T]:
        def stepping(*arguments: Any) -> T:
            done = step(*arguments)
            self.steps.append(name)
            copy = self._directory / f"killed-{len(self.copies)}"
            shutil.copytree(self._data, copy)
            self.copies.append(copy)
            return done

        return stepping


def test_a_kill_at_any_step_of_a_deletion_leaves_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(data_dir=tmp_path / "data", config=CONFIG) as broker:
        commit_all(broker)
        killed = Killed(broker, tmp_path, monkeypatch)
        assert delete(broker) == 0
        monkeypatch.undo()
    assert killed.steps[:3] == ["begin_delete_topic", "delete_topic", "append_to"]
    # The tombstones are on disk before the name is free: a power failure leaves none out.
    assert killed.steps[-2:] == ["flush", "finish_delete_topic"]
    assert killed.steps.count("flush") == killed.steps.count("append_to") == 3
    for step, copy in zip(killed.steps, killed.copies, strict=True):
        with Broker(data_dir=copy, config=CONFIG) as again:
            assert again.services.metadata.topic(TOPIC) is None, step
            again.services.topics.create(TOPIC, 3)
            assert found(again) == [], step


def test_a_commit_for_an_earlier_topic_of_the_name_does_not_count(broker: Broker, tmp_path: Path) -> None:
    """What a power failure may bring back, and what Kafka leaves in a directory that we take over."""
    commit_all(broker)
    partition = broker.services.partition("__consumer_offsets", broker.services.groups.log.partition_number(GROUPS[0]))
    assert partition is not None
    for at, topic_id in enumerate((random_uuid(), broker.services.metadata.topic(TOPIC).topic_id)):  # type: ignore[union-attr]
        key = encode_offset_key(OffsetKey(GROUPS[0], TopicPartition(TOPIC, at)))
        value = encode_offset_value(CommittedOffset(77 + at, "", 1, topic_id=topic_id))
        partition.append(build_batch([Record(0, 1, key, value)]), origin="coordinator")
    broker.close()
    with Broker(data_dir=tmp_path / "data", config=CONFIG) as again:
        assert 77 not in found(again)
        assert found(again).count(78) == 3


def test_many_commits_are_forgotten_in_pieces_also_those_that_come_between(broker: Broker) -> None:
    commit_all(broker)
    commits = broker.services.groups.commits
    number = len(GROUPS) * 2 + 1
    pieces = 0
    for at in range(1_200):
        commits.load(OffsetKey("big", TopicPartition(TOPIC, at)), CommittedOffset(at, "", 1), None)
    late = OffsetKey("late", TopicPartition(TOPIC, 0))
    commits.load(late, CommittedOffset(1, "", 1), 17)
    for written in commits.remove_topic(TOPIC):
        pieces += 1
        assert written
        if pieces == 1:  # its transaction is committed now
            commits.transaction_ended(17, broker.services.groups.log.partition_number("late"), committed=True)
    assert pieces == -(-(1_200 + number + 1) // 500)
    assert commits.committed.groups() == []


def test_a_deletion_does_not_look_at_commits_for_other_topics(broker: Broker) -> None:
    commits = broker.services.groups.commits

    def commit_and_forget(topic: str) -> None:
        commits.load(OffsetKey("g", TopicPartition(topic, 0)), CommittedOffset(1, "", 1), None)
        for _ in commits.remove_topic(topic):
            continue

    commit_all(broker)
    commit_and_forget("warm up")
    few = lines_of_work(lambda: commit_and_forget("a"))
    for at in range(1_000):
        commits.load(OffsetKey(f"g{at % 10}", TopicPartition(f"t{at}", 0)), CommittedOffset(1, "", 1), None)
    assert lines_of_work(lambda: commit_and_forget("b")) < 1.2 * few


def test_a_name_stays_taken_while_commits_cannot_be_removed(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit_all(broker)

    def refuse(*_: object) -> None:
        raise KafkaStorageError("the disk is gone")

    monkeypatch.setattr(broker.services.groups.log, "append_to", refuse)
    assert delete(broker) == 0
    assert "its name stays reserved until the next start" in caplog.text
    assert [topic.name for topic in broker.services.store.deleting_topics()] == [TOPIC]
    broker.close()
    with Broker(data_dir=tmp_path / "data", config=CONFIG) as again:
        assert again.services.store.deleting_topics() == []
        again.services.topics.create(TOPIC, 3)
        assert found(again) == []


def test_a_start_reads_nothing_of_an_internal_topic_that_was_being_deleted(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", config=CONFIG) as broker:
        commit_all(broker)
        broker.services.store.begin_delete_topic("__consumer_offsets")
    with Broker(data_dir=tmp_path / "data", config=CONFIG) as again:
        assert found(again) == []
        assert again.services.groups.classics.groups() == []
