"""Requests for partitions that this broker of a cluster does not lead, or leads with replicas that are behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.cluster.coordinator_world import CoordinatorWorld, PlayedNode, play

from stratalog.broker.apis.k02_list_offsets import list_offsets
from stratalog.broker.apis.k21_delete_records import delete_records
from stratalog.broker.apis.k23_offset_for_leader_epoch import offset_for_leader_epoch
from stratalog.broker.apis.k61_describe_producers import describe_producers
from stratalog.broker.groups import TopicPartition
from stratalog.broker.server import RequestContext
from stratalog.records import Record, build_batch
from stratalog.wire import ApiKey, build_message, request_class

UNKNOWN, LEADER_NOT_AVAILABLE, NOT_LEADER, TIMED_OUT, FENCED, OFFSET_NOT_AVAILABLE = 3, 5, 6, 7, 74, 78
ORDERS = TopicPartition("orders", 0)


async def ask(node: PlayedNode, handler: Callable[..., Any], key: ApiKey, version: int, **fields: Any) -> Any:
    async def run(function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)

    def partition(topic: str, number: int) -> Any:
        return None if number == 9 else node.get(topic, number)

    broker: Any = SimpleNamespace(
        partition=partition,
        cluster=SimpleNamespace(leader=lambda topic, number: (2, 0) if topic == "orders" else None),
        metadata=SimpleNamespace(topic=lambda name: None),
        loop=node.world.loop,
        config={"remote.list.offsets.request.timeout.ms": 1000},
        workers=SimpleNamespace(run=run),
        logs=SimpleNamespace(write_checkpoints=lambda: None),
    )
    ctx = RequestContext(broker, key, version, peer=SimpleNamespace())  # type: ignore[arg-type]
    answer = handler(ctx, build_message(request_class(key, version), fields))
    return await answer if asyncio.iscoroutine(answer) else answer


async def latest(node: PlayedNode, *, number: int = 0, epoch: int = -1, version: int = 7, replica: int = -1) -> Any:
    wanted = {"partition_index": number, "current_leader_epoch": epoch, "timestamp": -1}
    topics = [{"name": "orders", "partitions": [wanted]}]
    answer = await ask(node, list_offsets, ApiKey.LIST_OFFSETS, version, replica_id=replica, topics=topics)
    (found,) = answer.topics[0].partitions
    return int(found.error_code), found.offset


async def delete(node: PlayedNode, offset: int, timeout_ms: int) -> Any:
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": offset}]}]
    answer = await ask(node, delete_records, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=timeout_ms)
    (found,) = answer.topics[0].partitions
    return int(found.error_code), found.low_watermark


def write(node: PlayedNode, count: int) -> None:
    node.partitions[ORDERS].append(build_batch([Record(at, 0, None, b"v") for at in range(count)]))


def test_partitions_that_others_lead_have_their_error_and_unknown_ones_another(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        world.move(ORDERS, 2)
        node = world.nodes[1]
        for number in (0, 9):  # a follower; no replica at all
            assert await latest(node, number=number) == (NOT_LEADER, -1)
            topics: Any = [{"topic": "orders", "partitions": [{"partition": number, "leader_epoch": 0}]}]
            key = ApiKey.OFFSET_FOR_LEADER_EPOCH
            ends = await ask(node, offset_for_leader_epoch, key, 4, topics=topics, replica_id=-2)
            assert int(ends.topics[0].partitions[0].error_code) == NOT_LEADER
            topics = [{"name": "orders", "partition_indexes": (number,)}]
            reported = await ask(node, describe_producers, ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
            assert int(reported.topics[0].partitions[0].error_code) == NOT_LEADER
        assert (await delete(node, 0, 100))[0] == NOT_LEADER
        topics = [{"name": "nothing", "partition_indexes": (0,)}]
        reported = await ask(node, describe_producers, ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
        assert int(reported.topics[0].partitions[0].error_code) == UNKNOWN
        assert await latest(world.nodes[2], epoch=0) == (FENCED, -1)

    play(tmp_path, work)


def test_a_new_leader_says_where_readers_end_when_its_replicas_have_what_was_there(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        write(world.nodes[1], 5)
        world.replicate(ORDERS)  # broker 2 has the records, and not the high watermark
        world.move(ORDERS, 2)
        assert await latest(world.nodes[2]) == (OFFSET_NOT_AVAILABLE, -1)
        assert await latest(world.nodes[2], version=4) == (LEADER_NOT_AVAILABLE, -1)
        assert await latest(world.nodes[2], replica=1) == (0, 5), "a follower asks for the end of the log"
        world.replicate(ORDERS)
        assert await latest(world.nodes[2]) == (0, 5)

    play(tmp_path, work)


def test_a_tool_that_compares_replicas_gets_the_end_of_each(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        write(world.nodes[1], 5)
        assert await latest(world.nodes[1], replica=-2) == (0, 5), "the high watermark does not count"
        assert await latest(world.nodes[2], replica=-2) == (0, 0)
        world.replicate(ORDERS)
        assert await latest(world.nodes[2], replica=-2) == (0, 5)
        assert await latest(world.nodes[2], replica=-2, number=9) == (NOT_LEADER, -1), "no replica is here"
        assert await latest(world.nodes[2]) == (NOT_LEADER, -1)

    play(tmp_path, work)


@pytest.mark.parametrize("comes_back", [True, False])
def test_records_are_deleted_when_all_replicas_have_deleted_them(tmp_path: Path, comes_back: bool) -> None:
    async def work(world: CoordinatorWorld) -> None:
        write(world.nodes[1], 5)
        for _ in range(2):
            world.replicate(ORDERS)
        deletion = asyncio.ensure_future(delete(world.nodes[1], 3, 60_000 if comes_back else 20))
        if comes_back:
            await world.turns()
            assert not deletion.done()
            world.nodes[1].partitions[ORDERS].note_fetch(2, 102, 5, 3)
            assert await deletion == (0, 3)
        else:
            assert await deletion == (TIMED_OUT, -1)

    play(tmp_path, work)
