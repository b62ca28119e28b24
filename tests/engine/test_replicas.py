"""Replicas of a cluster on real logs: two engines, each with its own directory, and a controller that is played."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.engine.test_log_manager import batch
from tests.sim.model_controller import ModelPartition
from tests.support.waiting import wait_until

from stratalog.config import BrokerConfig, LogConfig
from stratalog.engine import LogManager, Partition, ReplicaChanges
from stratalog.engine.metrics.metrics_logs import METRICS
from stratalog.engine.metrics.metrics_traffic import METRICS as TRAFFIC
from stratalog.engine.replication import ReplicaFetcher
from stratalog.errors import (
    KafkaError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
)
from stratalog.log.format import Isolation
from stratalog.remote.api import TopicIdPartition
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, ConnectionOptions, UnreachableError

TOPIC_ID = UUID("11111111-2222-3333-4444-555555555555")
KEY = TopicIdPartition(TOPIC_ID, "orders", 0)
PROPERTIES = {
    "replica.fetch.backoff.ms": "10",
    "replica.fetch.wait.max.ms": "20",
    "replica.lag.time.max.ms": "200",
}


class _Code(SimpleNamespace):
    def __int__(self) -> int:
        return int(self.value)


def code(value: int) -> _Code:
    return _Code(value=value, name=str(value))


class Pair:
    """Brokers 1 and 2 in one process: fetches are calls of the other engine, the controller is `assigned`."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.min_isr = 1
        self.assigned = ModelPartition((1, 2), (1, 2), leader=1, leader_epoch=3, partition_epoch=10)
        self.engines: dict[int, LogManager] = {}
        self.unreachable: set[int] = set()
        self.lock = threading.Lock()
        #: Errors of AssignReplicasToDirs, of the request and of each partition, and what it reported.
        self.assign_errors: list[tuple[int, int]] = []
        self.reported_directories: list[tuple[int, list[UUID]]] = []
        for node in (1, 2):
            self.start(node)

    def start(self, node: int) -> None:
        config = BrokerConfig.from_properties({**PROPERTIES, "node.id": str(node)})
        engine = LogManager([self.tmp_path / str(node)], config, cluster_id="QlVyk3RvQ9-abcdefghijA")
        self.engines[node] = engine
        engine.start_replicas({KEY: self.assigned}, View(self, node))

    def partition(self, node: int) -> Partition:
        found = self.engines[node].get("orders", 0)
        assert found is not None
        return found

    def publish(self, *nodes: int) -> None:
        for node in nodes or (1, 2):
            here = {KEY: self.assigned}
            leads = self.assigned.leader == node
            self.engines[node].apply(ReplicaChanges(leaders=here if leads else {}, followers={} if leads else here))

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        known = self.assigned
        self.assigned = replace(
            known,
            leader=leader,
            isr=known.isr if isr is None else isr,
            leader_epoch=known.leader_epoch + 1,
            partition_epoch=known.partition_epoch + 1,
        )

    def alter(self, fields: dict[str, Any]) -> Any:
        (topic,) = fields["topics"]
        (wanted,) = topic["partitions"]
        with self.lock:
            error = 0 if wanted["partition_epoch"] == self.assigned.partition_epoch else 95
            if not error:
                isr = tuple(each["broker_id"] for each in wanted["new_isr_with_epochs"])
                self.assigned = replace(self.assigned, isr=isr, partition_epoch=self.assigned.partition_epoch + 1)
            known = self.assigned
        answer = SimpleNamespace(
            partition_index=0,
            error_code=code(error),
            leader_epoch=known.leader_epoch,
            isr=known.isr,
            leader_recovery_state=0,
            partition_epoch=known.partition_epoch,
        )
        return SimpleNamespace(error_code=code(0), topics=[SimpleNamespace(topic_id=TOPIC_ID, partitions=[answer])])

    def assign(self, fields: dict[str, Any]) -> Any:
        """Answer AssignReplicasToDirs with the next error, and keep what was asked."""
        top, each_one = self.assign_errors.pop(0) if self.assign_errors else (0, 0)
        directories = [
            SimpleNamespace(
                topics=[
                    SimpleNamespace(
                        topic_id=topic["topic_id"],
                        partitions=[SimpleNamespace(error_code=code(each_one), **one) for one in topic["partitions"]],
                    )
                    for topic in directory["topics"]
                ]
            )
            for directory in fields["directories"]
        ]
        self.reported_directories.append((fields["broker_id"], [each["id_"] for each in fields["directories"]]))
        return SimpleNamespace(error_code=code(top), directories=directories)

    def fetch(self, leader: int, fields: dict[str, Any]) -> Any:
        """Answer as `broker/fetch` does."""
        partition = self.partition(leader)
        log = partition.log
        (topic,) = fields["topics"]
        (wanted,) = topic["partitions"]
        diverging, records, error = (-1, -1), b"", 0
        try:
            partition.check_epoch(wanted["current_leader_epoch"])
            offset, last = wanted["fetch_offset"], wanted["last_fetched_epoch"]
            found = (-1, -1) if last < 0 else log.leader_epochs.end_offset_for(last, log.log_end_offset)
            if last >= 0 and (found[0] < last or found[1] < offset):
                diverging = found
            else:
                state = fields["replica_state"]
                partition.note_fetch(state["replica_id"], state["replica_epoch"], offset, wanted["log_start_offset"])
                data = partition.read(offset, wanted["partition_max_bytes"], isolation=Isolation.LOG_END)
                records = b"" if data.slice is None else bytes(data.slice.read())
        except OffsetOutOfRangeError:
            error = 1
        except KafkaError as failure:
            error = failure.code
        if not records:
            threading.Event().wait(0.005)
        answer = SimpleNamespace(
            partition_index=0,
            error_code=code(error),
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            diverging_epoch=SimpleNamespace(epoch=diverging[0], end_offset=diverging[1]),
            records=records,
        )
        return SimpleNamespace(error_code=code(0), responses=[SimpleNamespace(topic_id=TOPIC_ID, partitions=[answer])])

    def files(self, node: int) -> dict[str, bytes]:
        directory = self.partition(node).log.directory
        return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}

    def close(self) -> None:
        for engine in self.engines.values():
            engine.stop_replication()
        for engine in self.engines.values():
            engine.close()


class View:
    """The cluster as one of the two sees it."""

    connection = ConnectionOptions((("127.0.0.1", 1),))

    def __init__(self, pair: Pair, node_id: int) -> None:
        self.pair = pair
        self.node_id = node_id
        self.broker_epoch = 100 + node_id

    def address(self, broker: int) -> tuple[str, int] | None:
        return ("127.0.0.1", broker)

    def leader_of(self, topic: str, partition: int) -> int:
        return self.pair.assigned.leader

    def topic_id(self, topic: str) -> UUID | None:
        return TOPIC_ID

    def isr_epoch(self, broker: int) -> int | None:
        return None if broker in self.pair.unreachable else 100 + broker

    def log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_properties({"min.insync.replicas": str(self.pair.min_isr)}, None)

    def ask_controller(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        if key is ApiKey.ASSIGN_REPLICAS_TO_DIRS:
            return self.pair.assign(fields)
        assert key is ApiKey.ALTER_PARTITION
        return self.pair.alter(fields)


class Wire:
    def __init__(self, pair: Pair, leader: int) -> None:
        self.pair, self.leader, self.is_broken = pair, leader, False

    def call(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        if {self.leader, fields["replica_id"]} & self.pair.unreachable:
            raise UnreachableError("cut")
        assert key is ApiKey.FETCH
        return self.pair.fetch(self.leader, fields)

    def close(self) -> None:
        pass


def connect_fetchers(monkeypatch: pytest.MonkeyPatch, pairs: Sequence[Pair]) -> None:
    """Let fetchers ask the last of `pairs`, which may still be empty."""

    def connected(fetcher: ReplicaFetcher) -> Client:
        return cast("Client", Wire(pairs[-1], fetcher._leader))

    monkeypatch.setattr(ReplicaFetcher, "_connected", connected)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    made: list[Pair] = []
    connect_fetchers(monkeypatch, made)
    made.append(Pair(tmp_path))
    try:
        yield made[0]
    finally:
        made[0].close()


def until(is_so: Callable[[], bool]) -> None:
    wait_until(is_so, "it comes", every=0.005)


def test_a_follower_has_the_leaders_bytes_and_its_high_watermark(pair: Pair) -> None:
    pair.publish()
    leader, follower = pair.partition(1), pair.partition(2)
    assert (leader.leader, follower.leader) == ((1, 3), (1, 3))
    assert (leader.replicated, follower.leader_epoch) == (True, -1)
    for number in range(20):
        leader.append(batch(b"%d" % number))
    until(lambda: leader.is_confirmed(19, 3))
    until(lambda: follower.log.high_watermark == 20)
    assert pair.files(1) == pair.files(2)
    assert follower.log.leader_epochs.entries == leader.log.leader_epochs.entries
    with pytest.raises(NotLeaderOrFollowerError):
        follower.append(batch(b"x"))


def test_a_follower_goes_on_with_another_number_of_fetchers(pair: Pair) -> None:
    pair.publish()
    leader, engine = pair.partition(1), pair.engines[2]
    for number, fetchers in enumerate(("2", "4", "1")):
        leader.append(batch(b"a%d" % number))
        engine.update_broker_config(BrokerConfig.from_properties({**PROPERTIES, "num.replica.fetchers": fetchers}))
        assert (
            len([each for each in threading.enumerate() if re.fullmatch(r"ReplicaFetcherThread-\d-1", each.name)]) == 1
        )
        leader.append(batch(b"b%d" % number))
        until(lambda last=2 * number + 1: leader.is_confirmed(last, 3))  # type: ignore[misc]
    until(lambda: pair.files(1) == pair.files(2))


def test_nothing_is_confirmed_before_the_follower_has_it(pair: Pair) -> None:
    pair.unreachable = {2}
    pair.publish()
    leader = pair.partition(1)
    info = leader.append(batch(b"a"))
    assert not leader.is_confirmed(info.last_offset, 3)
    assert leader.log.high_watermark == 0


def test_a_follower_that_is_away_leaves_and_comes_back(pair: Pair) -> None:
    pair.publish()
    leader = pair.partition(1)
    pair.unreachable = {2}
    leader.append(batch(b"a", b"b"))
    until(lambda: leader.is_confirmed(1, 3))
    assert pair.assigned.isr == (1,)
    pair.unreachable = set()
    until(lambda: pair.assigned.isr == (1, 2))
    assert pair.partition(2).log.log_end_offset == 2


def test_the_high_watermark_stands_under_min_isr(pair: Pair) -> None:
    pair.min_isr = 2
    pair.publish()
    leader = pair.partition(1)
    pair.unreachable = {2}
    leader.append(batch(b"a"))
    until(lambda: pair.assigned.isr == (1,))
    led = leader.led
    assert led is not None
    until(lambda: led.isr == {1})
    with pytest.raises(NotEnoughReplicasError):
        leader.check_min_isr()
    assert leader.log.high_watermark == 0


def test_a_former_leader_cuts_what_no_one_else_has(pair: Pair) -> None:
    pair.publish()
    first, second = pair.partition(1), pair.partition(2)
    first.append(batch(b"a"))
    until(lambda: second.log.high_watermark == 1)
    pair.unreachable = {2}
    first.append(batch(b"lost", b"lost too"))
    pair.elect(2, (2,))
    pair.publish(2)
    second.append(batch(b"b"))
    pair.unreachable = set()
    pair.publish(1)
    with pytest.raises(NotLeaderOrFollowerError):
        first.is_confirmed(2, 3)
    until(lambda: first.log.log_end_offset == 2 and first.log.leader_epochs.latest_epoch == 4)
    assert pair.files(1) == pair.files(2)
    until(lambda: pair.assigned.isr == (1, 2))


def test_the_epoch_is_in_the_file_before_its_first_record(pair: Pair) -> None:
    pair.publish(1)
    assert [(each.epoch, each.start_offset) for each in pair.partition(1).log.leader_epochs.entries] == [(3, 0)]


def test_older_metadata_changes_nothing(pair: Pair) -> None:
    pair.publish()
    older = replace(pair.assigned, leader=2, leader_epoch=2, partition_epoch=9)
    pair.engines[1].apply(ReplicaChanges(followers={KEY: older}))
    assert pair.partition(1).leader_epoch == 3


def test_without_a_leader_no_one_is_followed_and_nothing_appended(pair: Pair) -> None:
    pair.publish()
    pair.elect(-1)
    pair.publish()
    for node in (1, 2):
        with pytest.raises(NotLeaderOrFollowerError):
            pair.partition(node).append(batch(b"x"))
        assert pair.partition(node).leader == (-1, 4)


def test_the_high_watermark_survives_a_restart(pair: Pair) -> None:
    pair.publish()
    pair.partition(1).append(batch(b"a", b"b"))
    until(lambda: pair.partition(2).log.high_watermark == 2)
    pair.engines[2].close(broker_epoch=102)
    pair.start(2)
    assert pair.partition(2).log.high_watermark == 2
    assert pair.partition(2).leader_epoch == -1


def test_only_the_metadata_deletes(pair: Pair, tmp_path: Path) -> None:
    pair.publish()
    pair.partition(2).log.flush()
    pair.engines[2].apply(ReplicaChanges(deletes=frozenset({TopicIdPartition(UUID(int=7), "orders", 0)})))
    assert pair.engines[2].get("orders", 0) is not None
    pair.engines[2].apply(ReplicaChanges(deletes=frozenset({KEY})))
    assert pair.engines[2].get("orders", 0) is None
    assert not (tmp_path / "2" / "orders-0").exists()


def test_an_answer_under_way_does_not_reach_the_replica_that_follows_a_deleted_one(pair: Pair) -> None:
    pair.publish()
    deleted = pair.partition(2)
    epoch = deleted.role.leader_epoch
    pair.engines[2].apply(ReplicaChanges(deletes=frozenset({KEY})))
    with deleted.while_following(epoch) as follows:
        assert not follows, "it would be cut by its name, which another may have by now"


def test_a_replica_of_one_moves_its_high_watermark_itself(pair: Pair) -> None:
    pair.assigned = replace(pair.assigned, replicas=(1,), isr=(1,))
    pair.publish(1)
    partition = pair.partition(1)
    assert not partition.replicated
    partition.append(batch(b"a"))
    assert partition.is_confirmed(0, 3)


def test_metrics_tell_what_is_not_in_sync(pair: Pair) -> None:
    def value(name: str) -> float:
        (metric,) = [each for each in METRICS if each.mbean == f"kafka.server:type=ReplicaManager,name={name}"]
        (sample,) = metric.read(pair.engines[1])
        return sample.value

    pair.min_isr = 2
    pair.publish()
    assert value("UnderReplicatedPartitions") == 0
    assert value("AtMinIsrPartitionCount") == 1
    pair.elect(1, (1,))
    pair.unreachable = {2}
    pair.publish(1)
    assert value("UnderReplicatedPartitions") == 1
    assert value("UnderMinIsrPartitionCount") == 1
    assert value("AtMinIsrPartitionCount") == 0


def test_the_controller_is_reported_where_a_replica_lies_until_it_knows(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.engine.replication.directory_assignments._RETRY_S", 0.01)
    pair.publish(1)
    engine = pair.engines[1]
    (directory,) = engine.dirs.live
    assert engine.replication is not None
    stale_epoch, timed_out, passing, failed, gone = (77, 0), (7, 0), (0, 13), (0, -1), (0, 100)
    pair.assign_errors = [stale_epoch, timed_out, passing, failed]
    for recorded in (directory.directory_id, UUID(int=0)):
        engine.apply(ReplicaChanges(directories={KEY: recorded}))
    assert engine.replication.assignments.wait_until_assigned(10)
    assert pair.reported_directories == [(1, [directory.directory_id])] * 5, "the first was right already"
    pair.assign_errors = [gone]
    engine.apply(ReplicaChanges(directories={KEY: UUID(int=0)}))
    assert engine.replication.assignments.wait_until_assigned(10)
    assert len(pair.reported_directories) == 6, "the topic is gone: it is not asked again"


def test_a_directory_that_fails_is_named_by_its_id(pair: Pair) -> None:
    dirs = pair.engines[1].dirs
    (directory,) = dirs.live
    assert dirs.failed_ids == []
    dirs.fail(directory.path, "a disk that is gone")
    assert dirs.failed_ids == [directory.directory_id]


def test_metrics_count_what_is_replicated(pair: Pair) -> None:
    def value(node: int, name: str) -> float:
        (metric,) = [each for each in [*METRICS, *TRAFFIC] if each.mbean.endswith(f",name={name}")]
        return sum(sample.value for sample in metric.read(pair.engines[node]))

    pair.publish()
    pair.partition(1).append(batch(b"a"))
    until(lambda: pair.partition(1).is_confirmed(0, 3))
    size = pair.partition(2).log.size_bytes
    assert value(2, "ReplicationBytesInPerSec") == size > 0
    assert value(1, "ReplicationBytesInPerSec") == 0
    assert (value(2, "MaxLag"), value(2, "ConsumerLag"), value(2, "DeadThreadCount")) == (0, 0, 0)
    assert value(2, "MinFetchRate") > 0 == value(1, "MinFetchRate")
    pair.unreachable = {2}
    pair.partition(1).append(batch(b"b"))
    until(lambda: (pair.engines[1].replication.shrink_isrs(), value(1, "IsrShrinksPerSec") == 1)[1])  # type: ignore[union-attr]
    until(lambda: value(2, "FailedPartitionsCount") == 1)
    pair.unreachable = set()
    pair.publish()
    until(lambda: value(1, "IsrExpandsPerSec") == 1)
    until(lambda: value(2, "FailedPartitionsCount") == 0)


@dataclass(frozen=True)
class Placed(ModelPartition):
    """A partition whose replicas are all recorded in one directory."""

    recorded: UUID = field(kw_only=True)

    def directory(self, broker: int) -> UUID:
        return self.recorded


@pytest.mark.parametrize(
    ("recorded", "one_is_offline", "is_served"),
    [
        (UUID(int=0), True, False),
        (UUID(int=2), True, False),
        (UUID(int=777), True, False),
        (UUID(int=1), True, True),
        (UUID(int=0), False, True),
        (UUID(int=2), False, True),
        (UUID(int=777), False, True),
    ],
    ids=[
        "in an unknown one, one is offline",
        "in a lost one, one is offline",
        "in another one, one is offline",
        "not created yet, one is offline",
        "in an unknown one",
        "in a lost one",
        "in another one",
    ],
)
def test_a_replica_that_may_be_in_a_failed_directory_is_not_created_empty_in_another(
    pair: Pair, tmp_path: Path, recorded: UUID, one_is_offline: bool, is_served: bool
) -> None:
    config = BrokerConfig.from_properties({**PROPERTIES, "node.id": "1"})
    paths = [tmp_path / name for name in ("a", "b")]
    engine = LogManager(paths, config, cluster_id="QlVyk3RvQ9-abcdefghijA")
    try:
        engine.start_replicas({}, View(pair, 1))
        if one_is_offline:
            engine.dirs.fail(paths[0], "a disk that is gone")
        known = pair.assigned
        assigned = Placed(known.replicas, known.isr, leader=1, leader_epoch=3, partition_epoch=10, recorded=recorded)
        engine.apply(ReplicaChanges(leaders={KEY: assigned}, directories={KEY: recorded}))
        found = engine.get("orders", 0)
        assert found is not None
        assert (found.failure is None) is is_served
        assert found.leader_epoch == (3 if is_served else -1)
        assert [path.name for path in paths if (path / "orders-0").exists()] == (
            (["b"] if one_is_offline else ["a"]) if is_served else []
        )
    finally:
        engine.stop_replication()
        engine.close()
