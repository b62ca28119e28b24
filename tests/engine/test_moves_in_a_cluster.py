"""A replica that moves to another log directory of its broker: the controller knows the new one before it is there.

Invariant: the replica has its leader's bytes, in one directory, whatever happens to leaders, directories and brokers.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.engine.test_log_manager import batch
from tests.engine.test_replicas import KEY, PROPERTIES, Pair, View, connect_fetchers, until
from tests.sim.model_controller import ModelPartition

from stratalog.config import BrokerConfig
from stratalog.engine import LogManager, ReplicaChanges

CLUSTER_ID = "QlVyk3RvQ9-abcdefghijA"
NOT_A_REPLICA, NO_DIRECTORIES = 6, 35


class RecordedPartition(ModelPartition):
    """A partition whose replica of broker 1 has `recorded` as its directory in the metadata."""

    recorded = UUID(int=0)

    def directory(self, broker: int) -> UUID:
        return self.recorded if broker == 1 else super().directory(broker)


class Movable(Pair):
    """Broker 1 has the directories `one` and `two`. The controller answers assignments while `may_answer` is set."""

    def __init__(self, tmp_path: Path) -> None:
        self.may_answer = threading.Event()
        self.may_answer.set()
        super().__init__(tmp_path)

    def start(self, node: int) -> None:
        config = BrokerConfig.from_properties({**PROPERTIES, "node.id": str(node)})
        dirs = [self.tmp_path / "one", self.tmp_path / "two"] if node == 1 else [self.tmp_path / str(node)]
        self.engines[node] = LogManager(dirs, config, cluster_id=CLUSTER_ID)
        self.engines[node].start_replicas({KEY: self.assigned}, View(self, node))

    def restart(self) -> None:
        self.engines[1].stop_replication()
        self.engines[1].close()
        self.start(1)

    def assign(self, fields: dict[str, Any]) -> Any:
        answer = super().assign(fields)
        assert self.may_answer.wait(60)
        return answer

    @property
    def here(self) -> Path:
        return self.partition(1).log.directory.parent

    @property
    def there(self) -> Path:
        return self.tmp_path / ("two" if self.here.name == "one" else "one")

    def directory_id(self, path: Path) -> UUID:
        (found,) = [each.directory_id for each in self.engines[1].dirs._opened if each.path == path]
        return found

    @property
    def reported(self) -> list[UUID]:
        return [directory for _, directories in self.reported_directories for directory in directories]

    def move(self) -> Path:
        """Begin to move the replica of broker 1 and return the destination."""
        there = self.there
        self.engines[1].moves.begin(self.partition(1), there)
        return there

    def move_until_reported(self) -> Path:
        """Begin to move it, and return when the controller has the new directory but has not answered."""
        self.may_answer.clear()
        there = self.move()
        until(lambda: self.reported == [self.directory_id(there)])
        return there

    def has_ended(self) -> bool:
        return not self.engines[1].moves.all()

    def is_settled(self) -> bool:
        replication = self.engines[1].replication
        assert replication is not None
        return replication.assignments.wait_until_assigned(60)

    def directories(self) -> list[str]:
        """The directories of the partition on broker 1, except those that are being deleted."""
        found = [path for path in self.tmp_path.glob("*/orders-0*") if path.parent.name in ("one", "two")]
        return sorted(f"{path.parent.name}/{path.suffix}" for path in found if not path.name.endswith("-delete"))


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Movable]:
    made: list[Movable] = []
    connect_fetchers(monkeypatch, made)
    made.append(Movable(tmp_path))
    try:
        yield made[0]
    finally:
        made[0].may_answer.set()
        made[0].close()


def test_a_leader_leads_on_in_the_new_directory_once_the_controller_has_it(pair: Movable) -> None:
    pair.publish()
    leader, source = pair.partition(1), pair.here
    for number in range(20):
        leader.append(batch(b"%d" % number))
    there = pair.move_until_reported()
    info = leader.append(batch(b"while it waits"))
    until(lambda: leader.is_confirmed(info.last_offset, 3))
    assert pair.here == source
    (move,) = pair.engines[1].moves.all()
    until(lambda: move.offset_lag == 0)
    pair.may_answer.set()
    until(pair.has_ended)
    assert pair.here == there
    info = leader.append(batch(b"afterwards"))
    until(lambda: leader.is_confirmed(info.last_offset, 3))
    until(lambda: pair.files(1) == pair.files(2))
    assert (pair.reported, pair.directories()) == ([pair.directory_id(there)], [f"{there.name}/"])
    pair.elect(2)
    pair.publish()
    pair.partition(2).append(batch(b"of another leader"))
    until(lambda: pair.files(1) == pair.files(2) and leader.log.log_end_offset == 23)


def test_a_follower_moves_while_its_leader_is_written_to(pair: Movable) -> None:
    pair.elect(2)
    pair.publish()
    leader, follower = pair.partition(2), pair.partition(1)
    over = threading.Event()

    def produce() -> None:
        while not over.is_set():
            leader.append(batch(b"x" * 1000))

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        places = set()
        for _ in range(3):
            pair.move()
            until(pair.has_ended)
            places.add(pair.here)
    finally:
        over.set()
        thread.join()
    assert len(places) == 2
    until(lambda: follower.log.log_end_offset == leader.log.log_end_offset)
    assert pair.files(1) == pair.files(2)
    until(lambda: follower.log.high_watermark == leader.log.log_end_offset)
    assert follower.log.leader_epochs.entries == leader.log.leader_epochs.entries


def test_what_a_new_leader_does_not_have_leaves_the_copy_too(pair: Movable) -> None:
    pair.publish()
    first, second = pair.partition(1), pair.partition(2)
    first.append(batch(b"a"))
    until(lambda: second.log.high_watermark == 1)
    pair.unreachable = {2}
    first.append(batch(b"lost", b"lost too"))
    there = pair.move_until_reported()
    (move,) = pair.engines[1].moves.all()
    assert move.future is not None
    assert move.future.log_end_offset == 3
    with move.lock:  # the next look at the log finds it longer than the copy again
        pair.elect(2, (2,))
        pair.publish(2)
        second.append(batch(b"b", b"c", b"d", b"e"))
        pair.unreachable = set()
        pair.publish(1)
        until(lambda: first.log.log_end_offset == 5 and first.log.leader_epochs.latest_epoch == 4)
    pair.may_answer.set()
    until(pair.has_ended)
    assert pair.here == there
    assert pair.files(1) == pair.files(2)
    assert first.log.leader_epochs.entries == second.log.leader_epochs.entries


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_move_that_is_taken_back_reports_the_earlier_directory(
    pair: Movable, monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    monkeypatch.setattr("stratalog.engine.moves.DirectoryMoves._finish", lambda *_: None)
    monkeypatch.setattr("stratalog.engine.moves.DirectoryMoves._start", lambda _: None)
    pair.publish()
    partition, source = pair.partition(1), pair.here
    partition.append(batch(b"a"))
    pair.may_answer.clear()
    there, moves = pair.move(), pair.engines[1].moves
    (move,) = moves.all()
    assert moves._turn(move) == len(batch(b"a"))
    until(lambda: len(pair.reported) == 1)
    if is_answered:
        pair.may_answer.set()
        assert pair.is_settled()
    moves.begin(partition, source)
    pair.may_answer.set()
    assert pair.is_settled()
    assert pair.reported == [pair.directory_id(there), pair.directory_id(source)]
    assert (moves.all(), pair.directories()) == ([], [f"{source.name}/"])


def test_metadata_with_the_new_directory_may_come_before_the_replica_is_there(pair: Movable) -> None:
    pair.publish()
    pair.partition(1).append(batch(b"a"))
    there = pair.move_until_reported()
    pair.engines[1].apply(ReplicaChanges(directories={KEY: pair.directory_id(there)}))
    pair.may_answer.set()
    until(pair.has_ended)
    assert pair.is_settled()
    assert (pair.here, pair.reported) == (there, [pair.directory_id(there)])


@pytest.mark.parametrize(("error", "moves"), [(NOT_A_REPLICA, False), (NO_DIRECTORIES, True)])
def test_a_controller_that_refuses_stops_a_move_unless_it_knows_no_directories(
    pair: Movable, error: int, moves: bool
) -> None:
    pair.publish()
    pair.partition(1).append(batch(b"a"))
    pair.assign_errors = [(0, error)]
    source, there = pair.here, pair.move()
    until(pair.has_ended)
    assert pair.here == (there if moves else source)
    until(lambda: len(pair.directories()) == 1)
    assert pair.reported == [pair.directory_id(there)]
    pair.partition(1).append(batch(b"b"))


@pytest.mark.parametrize("failed", ["source", "destination"])
def test_a_directory_may_fail_while_the_controller_is_asked(pair: Movable, failed: str) -> None:
    pair.publish()
    partition, source = pair.partition(1), pair.here
    partition.append(batch(b"a"))
    there = pair.move_until_reported()
    directory = source if failed == "source" else there
    pair.engines[1]._fail(directory, "it is played")
    until(pair.has_ended)
    pair.may_answer.set()
    assert pair.is_settled()
    assert pair.reported == [pair.directory_id(there), pair.directory_id(source)]
    if failed == "source":
        assert partition.failure is not None
    else:
        partition.append(batch(b"b"))
        assert pair.here == source


def test_a_replica_that_is_deleted_leaves_no_copy(pair: Movable) -> None:
    pair.publish()
    pair.partition(1).append(batch(b"a"))
    pair.move_until_reported()
    pair.engines[1].apply(ReplicaChanges(deletes=frozenset({KEY})))
    assert (pair.has_ended(), pair.directories()) == (True, [])


def test_a_move_goes_on_after_a_restart(pair: Movable) -> None:
    pair.publish()
    pair.partition(1).append(batch(b"a"))
    there = pair.move_until_reported()
    pair.may_answer.set()
    until(pair.has_ended)
    pair.may_answer.clear()
    back = pair.move()
    until(lambda: pair.reported == [pair.directory_id(there), pair.directory_id(back)])
    pair.engines[1].moves._closed.set()  # the answer comes too late
    pair.may_answer.set()
    pair.restart()
    pair.publish(1)
    until(pair.has_ended)
    pair.engines[1].purge()
    assert (pair.here, len(pair.directories())) == (back, 1)
    assert pair.files(1) == pair.files(2)


def restart_without(pair: Movable, lost: Path, recorded: Path) -> None:
    """Stop broker 1 amid a move, and start it with an empty directory and `recorded` in the metadata."""
    RecordedPartition.recorded = pair.directory_id(recorded)
    engine = pair.engines[1]
    engine.moves._closed.set()  # the answer comes too late
    pair.may_answer.set()
    engine.stop_replication()
    engine.close()
    shutil.rmtree(lost)
    fields = {name: getattr(pair.assigned, name) for name in ModelPartition.__dataclass_fields__}
    pair.assigned = RecordedPartition(**{**fields, "partition_epoch": pair.assigned.partition_epoch + 1})
    pair.start(1)
    pair.publish(1)


def test_a_copy_is_the_replica_if_the_other_directory_is_lost_and_the_controller_has_its_directory(
    pair: Movable,
) -> None:
    pair.publish()
    pair.partition(1).append(batch(b"a", b"b"))
    source = pair.here
    until(lambda: pair.partition(1).is_confirmed(1, 3))
    there = pair.move_until_reported()
    restart_without(pair, source, recorded=there)
    assert pair.here == there
    assert pair.partition(1).log.log_end_offset == 2
    assert pair.files(1) == pair.files(2)


def test_a_copy_is_not_the_replica_if_the_controller_has_the_lost_directory(pair: Movable) -> None:
    pair.publish()
    pair.partition(1).append(batch(b"a", b"b"))
    source = pair.here
    pair.move_until_reported()
    until(lambda: pair.partition(1).is_confirmed(1, 3))
    pair.elect(2)
    restart_without(pair, source, recorded=source)
    pair.publish(2)
    until(lambda: pair.partition(1).log.log_end_offset == 2)
    assert pair.files(1) == pair.files(2)
    until(pair.has_ended)
    pair.engines[1].purge()
    assert len(pair.directories()) == 1


def test_a_replica_to_come_is_created_in_the_directory_it_was_asked_to(pair: Movable) -> None:
    for name in ("one", "two"):
        pair.engines[1].prefer("orders", 0, pair.tmp_path / name)
    pair.publish()
    assert pair.here == pair.tmp_path / "two"
    pair.engines[1].apply(ReplicaChanges(deletes=frozenset({KEY})))
    pair.publish()
    assert pair.here == pair.tmp_path / "one", "it is remembered once"
