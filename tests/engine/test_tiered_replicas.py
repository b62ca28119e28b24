"""Tiered replicas of a cluster: the leader alone copies, and followers begin behind what is remote."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.engine.test_log_manager import NOW_MS
from tests.engine.test_replicas import KEY
from tests.engine.tiered_pair import TieredPair, TieredWire
from tests.support.waiting import wait_until

from stratalog.engine import ReplicaChanges
from stratalog.engine.replication import ReplicaFetcher
from stratalog.errors import RetriableRemoteStorageError
from stratalog.records import Record, build_batch
from stratalog.remote.api import RemoteLogSegmentState
from stratalog.remote.storage import ObjectStoreRemoteStorageManager
from stratalog.wire.client import Client


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TieredPair]:
    made: list[TieredPair] = []

    def connected(fetcher: ReplicaFetcher) -> Client:
        return cast("Client", TieredWire(made[0], fetcher._leader, fetcher._cluster.node_id))

    monkeypatch.setattr(ReplicaFetcher, "_connected", connected)
    made.append(TieredPair(tmp_path))
    made[0].publish()
    try:
        yield made[0]
    finally:
        made[0].close()


def until(is_so: Callable[[], bool], what: str = "it comes") -> None:
    wait_until(is_so, what, every=0.003)


def of_producer(sequence: int) -> bytes:
    record = Record(0, NOW_MS, None, bytes(300))
    return build_batch([record], producer_id=7, producer_epoch=1, base_sequence=sequence)


def lead(pair: TieredPair, leader: int) -> None:
    """Elect a leader, known to both."""
    pair.elect(leader, (1, 2))
    pair.publish()


def begin_empty(pair: TieredPair, node: int, tmp_path: Path) -> None:
    """Have a broker start with an empty disk."""
    pair.engines[node].close()
    shutil.rmtree(tmp_path / str(node))
    pair.start(node)
    pair.publish(node)


def test_only_the_leader_copies_and_a_follower_keeps_what_is_not_remote(pair: TieredPair) -> None:
    pair.append(40)
    leader, follower = pair.partition(1).log, pair.partition(2).log
    pair.tier(2)
    assert follower.local_log_start_offset == 0, "nothing is remote yet"
    assert pair.copied_by() == {}
    pair.remotes[1].run_once(KEY)
    assert leader.highest_offset_in_remote_storage > 20
    pair.engines[2].apply_retention()
    assert follower.local_log_start_offset == 0, "it does not know yet what is remote"
    pair.tier(2)
    assert set(pair.copied_by()) == {1}
    assert follower.highest_offset_in_remote_storage == leader.highest_offset_in_remote_storage
    assert 0 < follower.local_log_start_offset <= leader.highest_offset_in_remote_storage + 1
    assert follower.log_start_offset == 0


def test_an_empty_follower_begins_behind_the_remote_tier_and_leads_as_if_it_had_been_there(
    pair: TieredPair, tmp_path: Path
) -> None:
    pair.append(20)
    lead(pair, 2)
    pair.append(20)
    lead(pair, 1)
    pair.append(20)
    pair.tier()
    leader = pair.partition(1).log
    assert leader.local_log_start_offset > 40
    begin_empty(pair, 2, tmp_path)
    pair.settle()
    follower = pair.partition(2).log
    assert follower.local_log_start_offset >= leader.local_log_start_offset
    assert follower.log_start_offset == leader.log_start_offset == 0
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert len(follower.leader_epochs.entries) == 3
    assert follower.active_producers() == leader.active_producers()
    lead(pair, 2)
    pair.append(20)
    assert pair.read_all(2) == list(range(80))
    pair.tier()
    assert set(pair.copied_by()) == {1, 2}
    assert pair.read_all(2) == list(range(80))


def test_a_follower_knows_the_producers_of_what_it_never_had(pair: TieredPair, tmp_path: Path) -> None:
    leader = pair.partition(1)
    for sequence in range(30):
        leader.append(of_producer(sequence))
    pair.settle()
    pair.tier()
    begin_empty(pair, 2, tmp_path)
    pair.settle()
    lead(pair, 2)
    again = pair.partition(2).append(of_producer(29))
    assert (again.duplicate, again.first_offset) == (True, 29)


def test_a_follower_begins_again_that_crashed_while_it_took_the_history_in(pair: TieredPair) -> None:
    pair.append(40)
    pair.tier()
    pair.unreachable = {2}
    follower, leader = pair.partition(2).log, pair.partition(1).log
    follower.truncate_fully_and_start_at(leader.local_log_start_offset)
    assert not follower.leader_epochs.entries
    pair.unreachable = set()
    until(lambda: follower.leader_epochs.entries == leader.leader_epochs.entries)
    pair.settle()
    assert follower.log_start_offset == 0


def test_a_follower_waits_until_it_knows_of_the_remote_segments(
    pair: TieredPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.append(40)
    pair.tier()
    pair.engines[2].close()
    shutil.rmtree(tmp_path / "2")
    pair.start(2)
    asked: list[int] = []

    def unknown(*_: object, **__: object) -> Any:
        asked.append(1)
        raise RetriableRemoteStorageError("its metadata is being read")

    with monkeypatch.context() as patch:
        patch.setattr(pair.remotes[2], "history", unknown)
        pair.publish(2)
        until(lambda: len(asked) > 1)
        assert pair.partition(2).log.log_end_offset == 0
    pair.settle()
    assert pair.remotes[2].counts.topic("orders").aux_state_errors >= len(asked)


# --- another leader, in every state of a copy -------------------------------------------------------------------------


def interrupted(pair: TieredPair, monkeypatch: pytest.MonkeyPatch, *, after: bool, act: Callable[[], object]) -> None:
    """Have `act` happen before or after the objects of the first segment that broker 1 copies."""
    original = ObjectStoreRemoteStorageManager.copy_log_segment_data
    acted: list[int] = []

    def copy(rsm: ObjectStoreRemoteStorageManager, metadata: Any, data: Any) -> Any:
        if metadata.broker_id != 1 or acted:
            return original(rsm, metadata, data)
        acted.append(1)
        if not after:
            act()
        custom = original(rsm, metadata, data)
        if after:
            act()
        return custom

    monkeypatch.setattr(ObjectStoreRemoteStorageManager, "copy_log_segment_data", copy)


@pytest.mark.parametrize("after", [False, True])
def test_a_leader_that_resigned_finishes_no_copy_and_leaves_no_objects(
    pair: TieredPair, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    pair.append(40)
    interrupted(pair, monkeypatch, after=after, act=lambda: lead(pair, 2))
    with pytest.raises(RetriableRemoteStorageError, match="no longer leads"):
        pair.remotes[1]._of(KEY).copy()
    assert pair.objects() == set()
    assert pair.copied_by() == {}
    assert pair.partition(1).log.highest_offset_in_remote_storage == -1
    pair.tier()
    assert set(pair.copied_by()) == {2}
    pair.append(1)
    assert pair.read_all(2) == list(range(41))


@pytest.mark.parametrize("after", [False, True])
def test_a_leader_that_does_not_know_that_it_is_none_may_finish_its_copy(
    pair: TieredPair, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    pair.append(40)

    def elected_elsewhere() -> None:
        pair.elect(2, (1, 2))
        pair.publish(2)
        pair.tier(2)

    interrupted(pair, monkeypatch, after=after, act=elected_elsewhere)
    pair.tier(1)
    pair.publish(1)
    pair.append(1)
    assert set(pair.copied_by()) == {1, 2}, "both have copied the same records, and both are right"
    pair.tier()
    assert pair.read_all(2) == list(range(41))
    lead(pair, 1)
    assert pair.read_all(1) == list(range(41))


def test_what_the_new_leader_deleted_does_not_count_for_the_old_one(
    pair: TieredPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.append(40)

    def deleted_elsewhere() -> None:
        pair.elect(2, (1, 2))
        pair.publish(2)
        second = pair.partition(2).log
        second.increment_log_start_offset(30, "DeleteRecords")
        pair.remotes[2]._of(KEY).expire()

    interrupted(pair, monkeypatch, after=True, act=deleted_elsewhere)
    with pytest.raises(RetriableRemoteStorageError, match="another broker has deleted it"):
        pair.remotes[1]._of(KEY).copy()
    assert pair.partition(1).log.highest_offset_in_remote_storage == -1
    assert pair.objects() == set()


def test_a_copy_that_a_dead_leader_left_is_not_deleted_before_its_records_are(
    pair: TieredPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.append(40)

    class Death(BaseException):
        pass

    def die() -> None:
        raise Death

    interrupted(pair, monkeypatch, after=True, act=die)
    with pytest.raises(Death):
        pair.remotes[1]._of(KEY).copy()
    lead(pair, 2)
    pair.tier()
    left = [each for each in pair.remotes[2].segments(KEY) if not each.is_readable]
    assert [each.state for each in left] == [RemoteLogSegmentState.COPY_SEGMENT_STARTED]
    assert set(pair.copied_by()) == {2}
    pair.partition(2).log.increment_log_start_offset(left[0].end_offset + 1, "DeleteRecords")
    pair.tier()
    assert all(each.is_readable for each in pair.remotes[2].segments(KEY))


def test_the_next_leader_goes_on_with_a_deletion(pair: TieredPair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.append(40)
    pair.tier()
    pair.partition(1).log.increment_log_start_offset(20, "DeleteRecords")
    with monkeypatch.context() as patch:

        def unreachable(*_: object) -> None:
            raise RetriableRemoteStorageError("the store is away")

        patch.setattr(ObjectStoreRemoteStorageManager, "delete_log_segment_data", unreachable)
        with pytest.raises(RetriableRemoteStorageError):
            pair.remotes[1]._of(KEY).expire()
    (begun,) = [each for each in pair.remotes[2].segments(KEY) if not each.is_readable]
    assert begun.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED
    until(lambda: pair.partition(2).log.log_start_offset == 20)
    lead(pair, 2)
    pair.append(1)
    pair.tier()
    assert begun.segment_id not in {each.segment_id for each in pair.remotes[2].segments(KEY)}
    assert all(each.is_readable for each in pair.remotes[2].segments(KEY))
    assert pair.read_all(2) == list(range(20, 41))


def test_the_leader_deletes_remotely_and_followers_begin_where_it_does(pair: TieredPair) -> None:
    pair.append(40)
    pair.tier()
    pair.partition(1).log.increment_log_start_offset(20, "DeleteRecords")
    before = pair.objects()
    pair.remotes[2].run_once(KEY)
    assert pair.objects() == before
    pair.remotes[1].run_once(KEY)
    assert pair.objects() < before
    until(lambda: pair.partition(2).log.log_start_offset == 20)
    lead(pair, 2)
    pair.append(1)
    assert pair.read_all(2) == list(range(20, 41))


def test_a_topic_that_is_deleted_takes_its_remote_segments_along_once(pair: TieredPair) -> None:
    pair.append(40)
    pair.tier()
    assert pair.objects()
    for node in (1, 2):
        pair.remotes[node].start()
    pair.engines[2].apply(ReplicaChanges(deletes=frozenset({KEY})))
    assert pair.objects(), "a replica that moves away deletes nothing"
    pair.engines[1].apply(ReplicaChanges(deletes=frozenset({KEY}), remote_deletes=frozenset({KEY})))
    until(lambda: not pair.objects(), "the remote segments go")


def test_a_deletion_whose_broker_died_is_finished_by_the_leader_of_the_metadata(
    pair: TieredPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.append(40)
    pair.tier()
    original = ObjectStoreRemoteStorageManager.delete_log_segment_data
    storage = pair.remotes[1].storage

    def unreachable(rsm: ObjectStoreRemoteStorageManager, metadata: Any) -> None:
        if rsm is storage:
            raise RetriableRemoteStorageError("the store is away")
        original(rsm, metadata)

    monkeypatch.setattr(ObjectStoreRemoteStorageManager, "delete_log_segment_data", unreachable)
    for node in (1, 2):
        pair.remotes[node].start()
    for node, remote in ((2, frozenset()), (1, frozenset({KEY}))):
        pair.engines[node].apply(ReplicaChanges(deletes=frozenset({KEY}), remote_deletes=remote))
    until(lambda: any(not each.is_readable for each in pair.remotes[2].segments(KEY)), "the deletion begins")
    pair.remotes[1].close()
    assert pair.objects()
    for _ in range(2):
        pair.remotes[2].take_over_deletions(0)
    until(lambda: not pair.objects(), "the remote segments go")
    until(lambda: pair.remotes[2].segments(KEY) == [], "they are known to be gone")
