"""A fetcher thread beside what goes wrong: one partition's failure, late responses, idle connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.engine.test_log_manager import batch
from tests.engine.test_replicas import KEY, PROPERTIES, TOPIC_ID, Pair, code, pair, until
from tests.sim.model_controller import ModelPartition

from stratalog.config import BrokerConfig, LogConfig
from stratalog.engine import LogManager, ReplicaChanges
from stratalog.remote.api import TopicIdPartition
from stratalog.wire import ApiKey
from stratalog.wire.client import ConnectionOptions

__all__ = ["pair"]

FOLLOWED = ModelPartition((1, 2), (1, 2), leader=1, leader_epoch=3, partition_epoch=10)
KEYS = [TopicIdPartition(TOPIC_ID, "orders", number) for number in (0, 1)]


class Cluster:
    """What broker 2 sees: broker 1 leads everything."""

    connection = ConnectionOptions((("127.0.0.1", 1),))
    node_id = 2
    broker_epoch = 102

    def address(self, broker: int) -> tuple[str, int] | None:
        return ("127.0.0.1", broker)

    def leader_of(self, topic: str, partition: int) -> int:
        return 1

    def topic_id(self, topic: str) -> UUID | None:
        return TOPIC_ID

    def isr_epoch(self, broker: int) -> int | None:
        return 100 + broker

    def log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_properties({}, None)

    def ask_controller(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        raise AssertionError("a follower asks nothing")


class Leader:
    """The connections to broker 1: `records` are what each partition gets at offset 0."""

    def __init__(self) -> None:
        self.records: dict[int, Any] = {}
        self.open = 0
        self.opened = 0
        self.asked = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def connect(self, host: str, port: int, options: ConnectionOptions) -> Any:
        return Connection(self)

    def answer(self, wanted: dict[str, Any]) -> Any:
        records = self.records.get(wanted["partition"], b"") if wanted["fetch_offset"] == 0 else b""
        return SimpleNamespace(
            partition_index=wanted["partition"],
            error_code=code(0),
            high_watermark=0,
            log_start_offset=0,
            diverging_epoch=SimpleNamespace(epoch=-1, end_offset=-1),
            records=records,
        )


class Connection:
    is_broken = False

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        leader.open += 1
        leader.opened += 1

    def call(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        assert key is ApiKey.FETCH
        self.leader.asked.set()
        assert self.leader.goes_on.wait(60)
        threading.Event().wait(0.002)
        (topic,) = fields["topics"]
        partitions = [
            self.leader.answer(each) for each in sorted(topic["partitions"], key=lambda one: one["partition"])
        ]
        return SimpleNamespace(
            error_code=code(0), responses=[SimpleNamespace(topic_id=TOPIC_ID, partitions=partitions)]
        )

    def close(self) -> None:
        self.leader.open -= 1


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    leader = Leader()
    monkeypatch.setattr("stratalog.engine.replication.fetcher.Client", leader.connect)
    return leader


@pytest.fixture
def follower(leader: Leader, tmp_path: Path) -> Iterator[LogManager]:
    config = BrokerConfig.from_properties({**PROPERTIES, "node.id": "2"})
    engine = LogManager([tmp_path], config, cluster_id="QlVyk3RvQ9-abcdefghijA")
    engine.start_replicas(dict.fromkeys(KEYS, FOLLOWED), cast("Any", Cluster()))
    try:
        yield engine
    finally:
        leader.goes_on.set()
        engine.stop_replication()
        engine.close()


def end_of(engine: LogManager, number: int) -> int:
    found = engine.get("orders", number)
    assert found is not None
    return found.log.log_end_offset


def test_a_partition_that_fails_does_not_hold_up_the_others(leader: Leader, follower: LogManager) -> None:
    sent = batch(b"a", b"b")
    leader.records = {0: "no bytes", 1: sent}
    follower.apply(ReplicaChanges(followers=dict.fromkeys(KEYS, FOLLOWED)))
    until(lambda: end_of(follower, 1) == 2)
    assert end_of(follower, 0) == 0
    leader.records[0] = sent
    until(lambda: end_of(follower, 0) == 2)


def test_a_response_after_the_end_changes_nothing(leader: Leader, follower: LogManager) -> None:
    leader.records = {0: batch(b"a")}
    leader.goes_on.clear()
    follower.apply(ReplicaChanges(followers={KEY: FOLLOWED}))
    assert leader.asked.wait(60)
    assert follower.replication is not None
    (fetcher,) = follower.replication.fetchers.fetchers()
    fetcher.stop()
    leader.goes_on.set()
    fetcher.join()
    assert end_of(follower, 0) == 0


def test_a_fetcher_without_partitions_keeps_no_connection(leader: Leader, follower: LogManager) -> None:
    """A leader that has moved everything away stops next; the connection would be dead when it leads again."""
    follower.apply(ReplicaChanges(followers={KEY: FOLLOWED}))
    until(lambda: leader.open == 1)
    leaderless = replace(FOLLOWED, leader=-1, leader_epoch=4, partition_epoch=11)
    follower.apply(ReplicaChanges(followers={KEY: leaderless}))
    until(lambda: leader.open == 0)
    follower.apply(ReplicaChanges(followers={KEY: replace(leaderless, leader=1, leader_epoch=5, partition_epoch=12)}))
    until(lambda: leader.open == 1)
    assert leader.opened == 2


def test_changes_of_isrs_go_on_after_one_that_could_not_be_applied(pair: Pair) -> None:
    pair.publish()
    leader = pair.partition(1)
    failed = threading.Event()

    def fail_once(_: object) -> None:
        if threading.current_thread().name == "stratalog-alter-partition" and not failed.is_set():
            failed.set()
            raise ValueError("a listener that fails")

    leader.add_listener(fail_once)
    pair.unreachable = {2}
    leader.append(batch(b"a"))
    assert failed.wait(60)
    pair.unreachable = set()
    until(lambda: pair.assigned.isr == (1, 2))
