"""Consumers read from followers (KIP-392), within what the follower knows to be committed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.broker.cluster.coordinator_world import CoordinatorWorld, play

from stratalog.broker.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchPlan,
    PendingFetch,
    WantedPartition,
    WantedTopic,
    rack_aware,
    read_plan,
)
from stratalog.broker.groups import TopicPartition
from stratalog.broker.purgatory import Purgatory
from stratalog.engine import Partition
from stratalog.engine.replication import ReadableReplica
from stratalog.log.format import Isolation
from stratalog.records import Record, build_batch

OUT_OF_RANGE, NOT_LEADER, FENCED, UNKNOWN_EPOCH = 1, 6, 74, 75
ORDERS = TopicPartition("orders", 0)


def plan(partition: Partition, offset: int, *, epoch: int = -1, of_leader: bool = False, **more: Any) -> FetchPlan:
    wanted = WantedPartition(partition, FetchPartition(0, epoch, offset, -1, 1 << 20), None)
    facts = {"min_bytes": 1, "max_bytes": 1 << 20, "max_wait_ms": 10_000, "replica_id": -1, **more}
    return FetchPlan([WantedTopic(b"orders", [wanted])], Isolation.HIGH_WATERMARK, of_leader=of_leader, **facts)


def read(partition: Partition, offset: int, **facts: Any) -> FetchedPartition:
    return read_plan(plan(partition, offset, **facts)).results[0][1][0]


def write(partition: Partition, count: int) -> None:
    partition.append(build_batch([Record(at, 0, None, b"v") for at in range(count)]))


def test_a_follower_gives_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        leader, follower = (world.nodes[node].partitions[ORDERS] for node in (1, 2))
        write(leader, 3)
        world.replicate(ORDERS)  # the follower has the records, and does not know that they are committed
        assert (follower.log.log_end_offset, follower.log.high_watermark) == (3, 0)
        assert (read(follower, 0).size, read(follower, 2).size, read(follower, 2).error_code) == (0, 0, 0)
        assert read(follower, 4).error_code == OUT_OF_RANGE
        world.replicate(ORDERS)
        world.replicate(ORDERS)
        assert follower.log.high_watermark == 3
        answer = read(follower, 0)
        assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (0, 3, 0)
        assert answer.size == read(leader, 0).size > 0

    play(tmp_path, work)


def test_only_the_leader_answers_those_that_know_no_racks(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        follower = world.nodes[2].partitions[ORDERS]
        assert read(follower, 0, of_leader=True).error_code == NOT_LEADER
        assert read(follower, 0).error_code == 0
        follower.retire()
        assert read(follower, 0).error_code == NOT_LEADER

    play(tmp_path, work)


def test_a_follower_checks_the_epoch_that_it_follows_in(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        world.move(ORDERS, 2)
        world.move(ORDERS, 1)
        follower = world.nodes[2].partitions[ORDERS]
        codes = [read(follower, 0, epoch=epoch).error_code for epoch in (1, 2, 3)]
        assert codes == [FENCED, 0, UNKNOWN_EPOCH]

    play(tmp_path, work)


def test_a_consumer_that_waits_at_a_follower_hears_of_the_high_watermark_and_of_the_next_leader(
    tmp_path: Path,
) -> None:
    async def work(world: CoordinatorWorld) -> None:
        leader, follower = (world.nodes[node].partitions[ORDERS] for node in (1, 2))
        answered: list[str] = []
        state: Any = SimpleNamespace(loop=world.loop, purgatory=Purgatory(world.loop))

        def wait(name: str, offset: int, **facts: Any) -> None:
            wanted = plan(follower, offset, **facts)
            PendingFetch(state, wanted, read_plan(wanted), lambda: answered.append(name))

        wait("any", 0)
        wait("much", 0, min_bytes=100)
        wait("more", 0, min_bytes=1_000_000)
        write(leader, 10)
        world.replicate(ORDERS)
        await world.turns()
        assert answered == []
        world.replicate(ORDERS)
        world.replicate(ORDERS)
        await world.turns()
        assert answered == ["any", "much"]
        wait("of the epoch", 10, epoch=0)
        world.move(ORDERS, 2)
        await world.turns()
        assert answered == ["any", "much", "of the epoch"]

    play(tmp_path, work)


def test_the_replica_in_the_rack_that_is_furthest_is_preferred() -> None:
    racks = {2: "a", 3: "b", 4: "b", 5: "b", 6: None}
    followers = [
        ReadableReplica(2, 90, 0),
        ReadableReplica(3, 50, 0),
        ReadableReplica(4, 60, 7),
        ReadableReplica(5, 60, 8),
        ReadableReplica(6, 99, 0),
    ]
    assert rack_aware("b", followers, racks.get) == 4
    assert rack_aware("b", [*followers[:3], ReadableReplica(5, 60, 7)], racks.get) == 5
    assert rack_aware("a", followers, racks.get) == 2
    assert rack_aware("c", followers, racks.get) == -1


def test_only_in_sync_followers_that_have_the_offset_are_candidates(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        leader = world.nodes[1].partitions[ORDERS]
        write(leader, 3)
        world.replicate(ORDERS)
        led = leader.led
        assert led is not None
        assert [each.broker for each in led.readable_replicas(0)] == [2]
        assert led.readable_replicas(1) == []  # its last fetch was from 0
        world.replicate(ORDERS)
        assert [(each.broker, each.log_end_offset) for each in led.readable_replicas(3)] == [(2, 3)]
        led._reign.isr = frozenset({1})
        assert led.readable_replicas(0) == []

    play(tmp_path, work)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_consumer_is_sent_on_without_records(tmp_path: Path, epoch: int) -> None:
    async def work(world: CoordinatorWorld) -> None:
        leader = world.nodes[1].partitions[ORDERS]
        write(leader, 3)
        world.replicate(ORDERS)
        world.replicate(ORDERS)
        sent_on = plan(leader, 0, epoch=epoch, preferred=lambda partition, offset: 2)
        found = read_plan(sent_on)
        answer = found.results[0][1][0]
        assert (answer.preferred, answer.size, answer.high_watermark, answer.error_code) == (2, 0, 3, 0)
        assert found.urgent, "a client that had better read elsewhere must not wait here"
        assert read(leader, 0, epoch=5, preferred=lambda *_: 2).error_code == UNKNOWN_EPOCH
        assert read(leader, 0, preferred=lambda *_: -1).size > 0

    play(tmp_path, cast("Any", work))
