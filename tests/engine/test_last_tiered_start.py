"""`follower.fetch.last.tiered.offset.enable`: empty followers begin behind the last record of the tier (KIP-1023)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.engine.test_replicas import KEY
from tests.engine.test_tiered_replicas import begin_empty, lead, of_producer, until
from tests.engine.tiered_pair import CONFIG, TieredPair, TieredWire

from stratalog.engine.replication import ReplicaFetcher
from stratalog.log import PartitionLog
from stratalog.wire.client import Client

ENABLE = "follower.fetch.last.tiered.offset.enable"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TieredPair]:
    """A leader that keeps segments on its disk that are remote, too."""
    made: list[TieredPair] = []

    def connected(fetcher: ReplicaFetcher) -> Client:
        return cast("Client", TieredWire(made[0], fetcher._leader, fetcher._cluster.node_id))

    monkeypatch.setattr(ReplicaFetcher, "_connected", connected)
    made.append(TieredPair(tmp_path, replace(CONFIG, local_retention_bytes=6_000)))
    made[0].properties[ENABLE] = "true"
    made[0].publish()
    try:
        yield made[0]
    finally:
        made[0].close()


def logs(pair: TieredPair) -> tuple[PartitionLog, PartitionLog]:
    return pair.partition(1).log, pair.partition(2).log


def tier_much(pair: TieredPair) -> PartitionLog:
    """Append and tier; return the leader's log, whose disk begins between log start and the end of the tier."""
    pair.append(40)
    pair.tier()
    leader = pair.partition(1).log
    assert 5 < leader.local_log_start_offset < leader.highest_offset_in_remote_storage - 5
    return leader


def test_an_empty_follower_begins_behind_the_tier_and_leads_as_if_it_had_been_there(
    pair: TieredPair, tmp_path: Path
) -> None:
    pair.append(10)
    lead(pair, 2)
    pair.append(10)
    lead(pair, 1)
    for sequence in range(30):
        pair.partition(1).append(of_producer(sequence))
    pair.settle()
    pair.tier()
    assert pair.partition(1).log.local_log_start_offset > 0
    begin_empty(pair, 2, tmp_path)
    pair.settle()
    leader, follower = logs(pair)
    assert follower.local_log_start_offset == leader.highest_offset_in_remote_storage + 1
    assert leader.local_log_start_offset < follower.local_log_start_offset < leader.log_end_offset
    assert follower.log_start_offset == leader.log_start_offset == 0
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert len(follower.leader_epochs.entries) == 3
    assert follower.active_producers() == leader.active_producers()
    lead(pair, 2)
    again = pair.partition(2).append(of_producer(29))
    assert (again.duplicate, again.first_offset) == (True, 49)
    pair.append(20)
    pair.tier()
    assert pair.read_all(2) == list(range(70))


def test_a_follower_may_begin_at_the_end_of_a_log_that_is_remote_as_a_whole(pair: TieredPair, tmp_path: Path) -> None:
    tier_much(pair)
    pair.partition(1).log.roll()
    pair.tier()
    leader = pair.partition(1).log
    assert leader.highest_offset_in_remote_storage == leader.log_end_offset - 1
    begin_empty(pair, 2, tmp_path)
    pair.settle()
    _, follower = logs(pair)
    assert follower.local_log_start_offset == 40
    pair.append(5)
    lead(pair, 2)
    pair.append(1)
    assert pair.read_all(2) == list(range(46))


def test_by_default_it_begins_where_the_leaders_disk_does_and_the_setting_is_dynamic(
    pair: TieredPair, tmp_path: Path
) -> None:
    leader = tier_much(pair)
    del pair.properties[ENABLE]
    begin_empty(pair, 2, tmp_path)
    pair.settle()
    assert pair.partition(2).log.local_log_start_offset == leader.local_log_start_offset

    pair.engines[2].close()
    shutil.rmtree(tmp_path / "2")
    pair.start(2)
    pair.engines[2].update_broker_config(pair.engines[2].config.with_overrides({ENABLE: "true"}))
    pair.publish(2)
    pair.settle()
    assert pair.partition(2).log.local_log_start_offset == leader.highest_offset_in_remote_storage + 1


def test_a_follower_with_records_goes_on_where_the_leaders_disk_begins(pair: TieredPair) -> None:
    pair.append(2)
    pair.unreachable = {2}
    for sequence in range(40):
        pair.partition(1).append(of_producer(sequence))
    pair.elect(1, (1,))
    pair.publish(1)
    until(lambda: pair.partition(1).log.high_watermark == 42)
    pair.tier(1)
    leader, follower = logs(pair)
    assert 2 < leader.local_log_start_offset < leader.highest_offset_in_remote_storage
    pair.unreachable = set()
    pair.publish(2)
    pair.settle()
    assert follower.local_log_start_offset == leader.local_log_start_offset


def test_a_follower_below_the_log_start_begins_behind_the_tier_too(pair: TieredPair, tmp_path: Path) -> None:
    leader = tier_much(pair)
    leader.increment_log_start_offset(7, "DeleteRecords")
    begin_empty(pair, 2, tmp_path)
    pair.settle()
    follower = pair.partition(2).log
    assert follower.log_start_offset == 7
    assert follower.local_log_start_offset == leader.highest_offset_in_remote_storage + 1


def test_where_nothing_is_remote_it_begins_at_the_log_start(pair: TieredPair, tmp_path: Path) -> None:
    pair.append(40)
    pair.partition(1).log.increment_log_start_offset(7, "DeleteRecords")
    begin_empty(pair, 2, tmp_path)
    pair.settle()
    follower = pair.partition(2).log
    assert follower.log_start_offset == follower.local_log_start_offset == 7


def test_it_waits_for_a_new_leader_that_does_not_know_the_end_of_the_tier(pair: TieredPair, tmp_path: Path) -> None:
    tier_much(pair)
    pair.engines[1].close()
    pair.start(1)
    pair.publish(1)
    leader = pair.partition(1).log
    assert leader.highest_offset_in_remote_storage == -1
    begin_empty(pair, 2, tmp_path)
    errors = pair.remotes[2].counts.topic("orders")
    until(lambda: errors.aux_state_errors > 1, "it asks again")
    assert pair.partition(2).log.log_end_offset == 0
    pair.remotes[1].run_once(KEY)
    pair.settle()
    assert pair.partition(2).log.local_log_start_offset == leader.highest_offset_in_remote_storage + 1
