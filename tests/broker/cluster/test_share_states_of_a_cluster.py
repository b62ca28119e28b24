"""States of share groups in a cluster: each is with the leader of its partition, which the others ask.

No JVM: two brokers with real logs, by `coordinator_world`. Their requests are answered by the APIs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.broker.cluster.coordinator_world import STATES, CoordinatorWorld
from tests.broker.cluster.test_coordinators_by_partition import ORDERS, play

from stratalog.broker.apis import (
    k83_initialize_share_group_state as k83,
    k84_read_share_group_state as k84,
    k85_write_share_group_state as k85,
    k86_delete_share_group_state as k86,
    k87_read_share_group_state_summary as k87,
)
from stratalog.broker.groups import TopicPartition
from stratalog.broker.share import (
    AckBatch,
    AcquireLimits,
    BatchOffsets,
    DeliveryLimits,
    LatestOffsets,
    RecordState,
    ShareKey,
    ShareLeader,
    SharePartition,
    SharePlace,
    ShareWrite,
)
from stratalog.broker.share.state_records import StateBatch
from stratalog.errors import (
    FencedLeaderEpochError,
    InvalidRequestError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
)
from stratalog.wire import ApiKey, build_message, make_message, message_module, request_class, response_class
from stratalog.wire.client import UnreachableError

ACCEPTED, ARCHIVED = 2, 4
ORDERS_ID = UUID(int=1)
KEY = ShareKey("g", ORDERS_ID, 0)
PLACE = TopicPartition(STATES, 0)
_HANDLERS: dict[ApiKey, Any] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: k83.initialize_share_group_state,
    ApiKey.READ_SHARE_GROUP_STATE: k84.read_share_group_state,
    ApiKey.WRITE_SHARE_GROUP_STATE: k85.write_share_group_state,
    ApiKey.DELETE_SHARE_GROUP_STATE: k86.delete_share_group_state,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: k87.read_share_group_state_summary,
}


class Network:
    """Brings requests to the other broker, unless it is cut; `sent` is what was asked of whom."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self.world = world
        self.sent: list[tuple[int, ApiKey, dict[str, Any]]] = []
        self.is_cut = False
        self.asked_thrice = asyncio.Event()
        world.answer = self.answer

    async def answer(self, broker: int, key: ApiKey, fields: dict[str, Any]) -> Any:
        self.sent.append((broker, key, fields))
        if len(self.sent) == 3:
            self.asked_thrice.set()
        if self.is_cut:
            raise UnreachableError(f"broker {broker} is not reached")
        version = 1 if key in (ApiKey.WRITE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY) else 0
        module = message_module(key, version, "response")
        ctx = SimpleNamespace(
            version=version,
            broker=SimpleNamespace(share_states=self.world.nodes[broker].states),
            make=lambda name, **made: make_message(getattr(module, name), made),
            respond=lambda **made: make_message(response_class(key, version), made),
        )
        return await _HANDLERS[key](ctx, build_message(request_class(key, version), fields))


async def done(world: CoordinatorWorld, work: Coroutine[Any, Any, Any]) -> Any:
    """Carry something out while the replicas follow."""
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(60):
        while not task.done():
            await world.settle()
            await asyncio.sleep(0.01)
    return await task


def accepted(first: int, last: int, start: int = 0) -> ShareWrite:
    return ShareWrite(start, 0, (StateBatch(first, last, ACCEPTED, 1),))


def test_states_are_asked_for_where_they_are_and_go_on_at_the_next_coordinator(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        network = Network(world)
        here, there = world.nodes[1].persister, world.nodes[2].persister
        assert await done(world, there.summary(KEY)) is None
        await done(world, there.initialize(KEY, 3, 10))
        await done(world, there.write(KEY, 3, 0, accepted(12, 14, 10)))
        assert {(broker, key.name) for broker, key, _ in network.sent} == {
            (1, "READ_SHARE_GROUP_STATE_SUMMARY"),
            (1, "INITIALIZE_SHARE_GROUP_STATE"),
            (1, "WRITE_SHARE_GROUP_STATE"),
        }
        found = await done(world, here.read(KEY, 0))
        assert (found.state_epoch, found.start_offset) == (3, 10)
        assert found.batches == (StateBatch(12, 14, ACCEPTED, 1),)
        network.sent.clear()
        world.move(PLACE, 2)
        with pytest.raises(NotCoordinatorError):
            await world.nodes[1].states.read(KEY, 0)
        moved = await done(world, here.read(KEY, 1))
        assert (moved.state_epoch, moved.start_offset, moved.batches) == (3, 10, found.batches)
        assert (await done(world, there.summary(KEY))).state_epoch == 3
        assert [(broker, key) for broker, key, _ in network.sent] == [(2, ApiKey.READ_SHARE_GROUP_STATE)]
        with pytest.raises(FencedLeaderEpochError):
            await done(world, here.write(KEY, 3, 0, accepted(15, 15, 10)))
        await done(world, here.delete(KEY))
        assert await done(world, there.summary(KEY)) is None

    play(tmp_path, work)


def test_the_coordinator_deletes_the_states_of_a_deleted_topic_for_good(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        Network(world)
        await done(world, world.nodes[1].persister.initialize(KEY, 0, 0))
        for node in world.nodes.values():  # the other one has no states, and writes nothing
            node.storage.metadata.topic_by_id = lambda _: None
            node.states.begin_to_forget(ORDERS_ID)
        await world.settle()
        with pytest.raises(InvalidRequestError):
            await done(world, world.nodes[1].states.read(KEY, 0))
        world.move(PLACE, 2)
        with pytest.raises(InvalidRequestError):
            await done(world, world.nodes[2].persister.read(KEY, 0))

    play(tmp_path, work)


def test_a_write_is_answered_when_the_replicas_have_it_and_tried_again_at_the_next_leader(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        Network(world)
        here = world.nodes[1].persister
        await done(world, here.initialize(KEY, 0, 0))
        written = asyncio.ensure_future(here.write(KEY, 0, 0, accepted(0, 4)))
        await world.turns()
        assert not written.done(), "the replicas do not have it"
        world.elect(PLACE, 2)
        for node in world.nodes.values():
            node.catch_up()
        await done(world, asyncio.wait_for(asyncio.shield(written), 60))
        found = await done(world, world.nodes[2].persister.read(KEY, 0))
        assert found.batches == (StateBatch(0, 4, ACCEPTED, 1),)

    play(tmp_path, work)


def test_what_waits_for_one_broker_goes_together(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        network = Network(world)
        there = world.nodes[2].persister
        keys = [ShareKey("g", ORDERS_ID, number) for number in (0, 1)]
        await done(world, asyncio.gather(*(there.initialize(key, 0, 0) for key in keys)))  # type: ignore[arg-type]
        sent = [[len(topic["partitions"]) for topic in fields["topics"]] for _, _, fields in network.sent]
        assert sent == [[2]]

    play(tmp_path, work)


def test_no_broker_that_answers_is_tried_again_until_one_does(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        network = Network(world)
        network.is_cut = True
        begun = asyncio.ensure_future(world.nodes[2].persister.initialize(KEY, 0, 0))
        async with asyncio.timeout(60):
            await network.asked_thrice.wait()
        assert not begun.done()
        network.is_cut = False
        await done(world, asyncio.wait_for(asyncio.shield(begun), 60))
        assert (await done(world, world.nodes[1].persister.summary(KEY))).start_offset == 0

    play(tmp_path, work)


# --- leaders of partitions --------------------------------------------------------------------------------------------


def handed_out(shared: SharePartition, first: int, last: int) -> None:
    limits = AcquireLimits(500, 500)
    shared.delivery.acquire("m", first, [BatchOffsets(first, last)], limits, DeliveryLimits(), 0)


def leaders(world: CoordinatorWorld) -> dict[int, ShareLeader]:
    nothing: Any = None
    return {
        number: ShareLeader(node.storage, node.persister, nothing, node.workers, node.purgatory)
        for number, node in world.nodes.items()
    }


def test_what_a_member_said_holds_for_the_next_leader(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        network = Network(world)
        by_node = leaders(world)
        await done(world, world.nodes[1].persister.initialize(KEY, 0, 0))
        world.move(PLACE, 2)  # another broker has the states
        shared = await done(world, by_node[1].open(KEY, "orders"))
        handed_out(shared, 0, 9)
        network.is_cut = True
        said = asyncio.ensure_future(by_node[1].acknowledge(KEY, "m", [AckBatch(0, 4, (1,))]))
        await asyncio.sleep(0.05)
        assert not said.done()
        assert shared.delivery.start_offset == 0, "it counts when the coordinator has it"
        network.is_cut = False
        await done(world, asyncio.wait_for(asyncio.shield(said), 60))
        assert shared.delivery.start_offset == 5
        world.move(ORDERS[0], 2)
        with pytest.raises(NotLeaderOrFollowerError):
            await by_node[1].open(KEY, "orders")
        assert shared.is_fenced
        assert (await done(world, by_node[2].open(KEY, "orders"))).delivery.start_offset == 5
        for leader in by_node.values():
            leader.close()

    play(tmp_path, work)


def test_a_leader_that_was_is_refused_and_its_member_hears_of_it(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        Network(world)
        by_node = leaders(world)
        await done(world, world.nodes[1].persister.initialize(KEY, 0, 0))
        shared = await done(world, by_node[1].open(KEY, "orders"))
        handed_out(shared, 0, 9)
        world.elect(ORDERS[0], 2)
        world.nodes[2].catch_up()  # the new leader knows, the one before does not
        new = await done_without(world, 1, by_node[2].open(KEY, "orders"))
        handed_out(new, 0, 9)
        with pytest.raises(NotLeaderOrFollowerError):
            await done_without(world, 1, by_node[1].acknowledge(KEY, "m", [AckBatch(0, 4, (1,))]))
        assert shared.is_fenced
        assert [run.state for run in new.delivery.runs] == [RecordState.ACQUIRED]
        waiting: list[bool] = []
        new.watch(lambda: waiting.append(True))
        by_node[2].leadership_changed({SharePlace(ORDERS_ID, 0)})
        assert new.is_fenced
        assert waiting == [True], "fetches that wait hear of it"
        for leader in by_node.values():
            leader.close()

    play(tmp_path, work)


async def done_without(world: CoordinatorWorld, node: int, work: Coroutine[Any, Any, Any]) -> Any:
    """As `done`, while a broker hears nothing of the metadata."""
    task = asyncio.ensure_future(work)
    async with asyncio.timeout(60):
        while not task.done():
            world.nodes[3 - node].catch_up()
            world.replicate(PLACE)
            await world.turns()
            await asyncio.sleep(0.01)
    return await task


def test_the_end_of_a_partition_is_asked_of_its_leader(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        asked: list[tuple[int, list[int]]] = []

        async def answer(broker: int, key: ApiKey, fields: dict[str, Any]) -> Any:
            assert key is ApiKey.LIST_OFFSETS
            (topic,) = build_message(request_class(key, 7), fields).topics
            asked.append((broker, [each.partition_index for each in topic.partitions]))
            module = message_module(key, 7, "response")
            partitions = [
                make_message(module.ListOffsetsPartitionResponse, {"partition_index": number, "offset": 7 + number})
                for number in asked[-1][1]
            ]
            topics = [make_message(module.ListOffsetsTopicResponse, {"name": "orders", "partitions": partitions})]
            return make_message(response_class(key, 7), {"topics": topics})

        world.answer = answer
        node = world.nodes[2]
        broker: Any = SimpleNamespace(logs=node, cluster=node)
        ends = LatestOffsets(broker)
        assert await asyncio.gather(ends.of("orders", 0), ends.of("orders", 1)) == [7, 8]
        assert asked == [(1, [0, 1])]
        world.move(ORDERS[0], 2)
        assert await ends.of("orders", 0) == 0
        assert await ends.of("nowhere", 0) is None
        assert len(asked) == 1

    play(tmp_path, work)
