"""Groups and transactions of a cluster: loaded by who leads their partition, dropped by who led it.

No JVM: two brokers with real logs, by `coordinator_world`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.cluster.coordinator_world import GROUPS, IDS, CoordinatorWorld

from stratalog.broker.apis.k24_add_partitions_to_txn import add_partitions_to_txn
from stratalog.broker.coordinator_log import partition_for
from stratalog.broker.groups import TopicPartition
from stratalog.broker.groups.values import JoinRequest, Protocol
from stratalog.broker.transactions import TransactionState
from stratalog.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
)
from stratalog.wire import ApiKey

#: Groups by the partition of `__consumer_offsets` that they are in.
NAMES = [next(f"g{n}" for n in range(99) if partition_for(f"g{n}", 2) == number) for number in (0, 1)]
FIRST = TopicPartition(GROUPS, 0)
STATES = TopicPartition(IDS, 0)
JOIN = JoinRequest(
    member_id="",
    new_member_id="m",
    protocol_type="consumer",
    protocols=(Protocol("range", b""),),
    session_timeout_ms=30_000,
    rebalance_timeout_ms=30_000,
    client_id="c",
    client_host="/h",
)
ORDERS = [TopicPartition("orders", number) for number in (0, 1)]


def play(directory: Path, work: Callable[[CoordinatorWorld], Awaitable[None]]) -> None:
    async def run() -> None:
        world = CoordinatorWorld(directory)
        try:
            await world.turns()
            await work(world)
        finally:
            world.close()

    asyncio.run(run())


def test_a_commit_is_answered_when_the_replicas_have_it(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        commit = asyncio.ensure_future(world.nodes[1].commit(NAMES[0], 5))
        fetch = asyncio.ensure_future(world.nodes[1].committed(NAMES[0]))
        await world.turns()
        world.replicate(FIRST)
        await world.turns()
        assert not commit.done(), "the follower has it, and the leader does not know that"
        assert not fetch.done()
        world.replicate(FIRST)
        await world.turns()
        assert commit.done()
        assert await fetch == 5

    play(tmp_path, work)


def test_an_answer_that_waits_when_leadership_goes_is_not_coordinator(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        commit = asyncio.ensure_future(world.nodes[1].commit(NAMES[0], 5))
        await world.turns()
        world.elect(FIRST, 2)
        world.nodes[1].deliver()  # the replica knows, the coordinator does not
        await world.turns()
        with pytest.raises(NotCoordinatorError):
            await commit
        with pytest.raises(NotCoordinatorError):
            await world.nodes[1].committed(NAMES[0])
        await world.settle()
        assert await world.nodes[2].committed(NAMES[0]) == -1, "it was never replicated"

    play(tmp_path, work)


def test_what_an_earlier_epoch_has_left_writes_nothing_in_a_later_one(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        for leader in (2, 1):
            world.elect(FIRST, leader)
            world.nodes[1].deliver()
        assert world.nodes[1].partitions[FIRST].leader_epoch == 2
        end = world.nodes[1].partitions[FIRST].log.log_end_offset
        with pytest.raises(NotCoordinatorError):
            await world.nodes[1].commit(NAMES[0], 5)
        assert world.nodes[1].partitions[FIRST].log.log_end_offset == end
        await world.settle()
        commit = asyncio.ensure_future(world.nodes[1].commit(NAMES[0], 6))
        await world.settle()
        await commit

    play(tmp_path, work)


def test_who_waits_in_a_group_is_notified_that_its_coordinator_has_gone(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        groups = world.nodes[1].groups
        joins = [asyncio.ensure_future(groups.join(NAMES[0], replace(JOIN, new_member_id=each))) for each in "ab"]
        await world.turns()
        world.move(FIRST, 2)
        await world.turns()
        assert groups.all_groups() == []
        answers = await asyncio.gather(*joins, return_exceptions=True)
        reported = [each if isinstance(each, KafkaError) else each.error for each in answers]  # type: ignore[union-attr]
        assert [getattr(each, "code", each) for each in reported] == [NotCoordinatorError.code] * 2

    play(tmp_path, work)


def test_a_partition_that_is_lost_while_it_is_read_leaves_nothing(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        commit = asyncio.ensure_future(world.nodes[1].commit(NAMES[0], 5))
        await world.settle()
        await commit
        world.move(FIRST, 2)
        with pytest.raises(CoordinatorLoadInProgressError):
            await world.nodes[2].commit(NAMES[0], 6)
        world.move(FIRST, 1)
        await world.turns()
        assert world.nodes[2].groups.all_groups() == []
        with pytest.raises(NotCoordinatorError):
            await world.nodes[2].committed(NAMES[0])
        await world.settle()
        assert await world.nodes[1].committed(NAMES[0]) == 5

    play(tmp_path, work)


def test_members_stay_when_their_coordinator_leads_on_in_the_next_epoch(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        groups = world.nodes[1].groups
        join = asyncio.ensure_future(groups.join(NAMES[0], replace(JOIN, new_member_id="m")))
        commit = asyncio.ensure_future(world.nodes[1].commit("other" + NAMES[0], 5))
        await world.settle()
        await asyncio.gather(join, commit, return_exceptions=True)
        before = groups.all_groups()
        world.move(FIRST, 1)
        assert not groups.loading.is_loading(0), "nothing is read again"
        assert [id(each) for each in groups.all_groups()] == [id(each) for each in before] != []
        commit = asyncio.ensure_future(world.nodes[1].commit(NAMES[1], 6))
        await world.settle()
        await commit
        world.elect(FIRST, 2)
        world.elect(FIRST, 1)
        world.nodes[1].published.popleft()  # both arrive as one: epoch 3, with another leader in between
        world.nodes[1].catch_up()
        assert groups.loading.is_loading(0), "another leader may have written"

    play(tmp_path, work)


def test_a_partition_that_could_not_be_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(world: CoordinatorWorld) -> None:
        commit = asyncio.ensure_future(world.nodes[1].commit(NAMES[0], 5))
        await world.settle()
        await commit
        world.move(FIRST, 2)
        node = world.nodes[2]
        partition = node.partitions[FIRST]
        read, failures = partition.log.read, iter([OSError("a"), OSError("b")])

        def read_or_fail(*arguments: Any, **keywords: Any) -> Any:
            for failure in failures:
                raise failure
            return read(*arguments, **keywords)

        monkeypatch.setattr(partition.log, "read", read_or_fail)
        pauses: list[float] = []
        calls: list[Callable[[], None]] = []

        def later(pause: float, call: Callable[..., None], *arguments: object) -> None:
            pauses.append(pause)
            calls.append(lambda: call(*arguments))

        monkeypatch.setattr(world.loop, "call_later", later)
        for _ in range(2):
            await world.turns()
            assert len(calls) == 1
            with pytest.raises(NotCoordinatorError):
                await node.committed(NAMES[0])
            calls.pop()()
        await world.settle()
        assert await node.committed(NAMES[0]) == 5
        assert pauses == [1.0, 2.0]

    play(tmp_path, work)


def test_partitions_come_and_go_by_themselves(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        commits = [asyncio.ensure_future(world.nodes[1].commit(name, 5)) for name in NAMES]
        await world.settle()
        await asyncio.gather(*commits)
        world.move(FIRST, 2)
        await world.settle()
        assert [group.group_id for group in world.nodes[1].groups.all_groups()] == [NAMES[1]]
        assert [group.group_id for group in world.nodes[2].groups.all_groups()] == [NAMES[0]]
        assert await world.nodes[1].committed(NAMES[1]) == await world.nodes[2].committed(NAMES[0]) == 5

    play(tmp_path, work)


class Client:
    """Commits 1, 2, 3 .. for a group, each until it is answered, and fetches beside that, wherever it gets through."""

    def __init__(self, world: CoordinatorWorld, group: str, choice: random.Random) -> None:
        self.world, self.group, self.choice = world, group, choice
        self.acknowledged = self.fetched = 0
        self.tasks = [asyncio.ensure_future(self._commit()), asyncio.ensure_future(self._fetch())]

    async def _commit(self) -> None:
        offset = 1
        while True:
            try:
                await self.world.nodes[self.choice.choice((1, 2))].commit(self.group, offset)
            except (NotCoordinatorError, CoordinatorLoadInProgressError, CoordinatorNotAvailableError):
                await asyncio.sleep(0)
            else:
                self.acknowledged = offset
                offset += 1

    async def _fetch(self) -> None:
        while True:
            floor = max(self.acknowledged, self.fetched)
            try:
                found = await self.world.nodes[self.choice.choice((1, 2))].committed(self.group)
            except (NotCoordinatorError, CoordinatorLoadInProgressError, CoordinatorNotAvailableError):
                await asyncio.sleep(0)
                continue
            assert found >= floor or floor == 0, f"{self.group}: {found} is committed, {floor} was"
            self.fetched = max(found, 0)
            await asyncio.sleep(0)

    async def stop(self) -> None:
        for task in self.tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_acknowledged_is_lost_under_any_leader(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")

    async def work(world: CoordinatorWorld) -> None:
        choice = random.Random(seed)
        clients = [Client(world, name, choice) for name in NAMES]
        for _ in range(600):
            node = world.nodes[choice.choice((1, 2))]
            at = TopicPartition(GROUPS, choice.randrange(2))
            match choice.randrange(12):
                case 0:
                    world.elect(at, choice.choice((1, 2)))
                case 1 | 2 if node.published:
                    node.deliver()
                case 3 | 4 if node.unheard:
                    node.hear()
                case 5:
                    world.replicate(at, batches=False)
                case 6 | 7 | 8 | 9:
                    world.replicate(at)
                case _:
                    await world.turns(choice.randrange(4))
            for client in clients:
                for task in client.tasks:
                    if task.done():
                        task.result()
        await world.settle()
        await world.settle()
        for client in clients:
            await client.stop()
            assert client.acknowledged >= 2, "the run proves something"
            leader = world.nodes[world.assigned[TopicPartition(GROUPS, NAMES.index(client.group))].leader]
            fetch = asyncio.ensure_future(leader.committed(client.group))
            await world.settle()
            assert await fetch >= client.acknowledged

    play(tmp_path, work)


# --- transactions -----------------------------------------------------------------------------------------------------


class Peer:
    """Another broker that is asked for markers: says what it is asked to say, and remembers what it got."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self.codes: dict[TopicPartition, int] = {}
        self.got: list[tuple[int, list[TopicPartition]]] = []
        world.answer = self.answer

    async def answer(self, broker: int, key: ApiKey, fields: dict[str, Any]) -> Any:
        assert key is ApiKey.WRITE_TXN_MARKERS
        (marker,) = fields["markers"]
        wanted = [TopicPartition(each["name"], n) for each in marker["topics"] for n in each["partition_indexes"]]
        self.got.append((broker, wanted))
        topics = [
            SimpleNamespace(
                name=each.topic,
                partitions=[SimpleNamespace(partition_index=each.partition, error_code=self.codes.get(each, 0))],
            )
            for each in wanted
        ]
        return SimpleNamespace(markers=[SimpleNamespace(producer_id=marker["producer_id"], topics=topics)])


async def begun(world: CoordinatorWorld, *, ended: bool) -> None:
    """A transaction of "tx" with both partitions of `orders`, the second of which is led by broker 2; or its end."""
    world.move(ORDERS[1], 2)
    transactions = world.nodes[1].transactions
    producer = transactions.init_producer_id("tx", 60_000, None)
    transactions.add_partitions("tx", producer, ORDERS, 2)
    await world.settle()
    if ended:
        transactions.end("tx", producer, 2, committed=True)


def state(world: CoordinatorWorld, node: int) -> TransactionState:
    return world.nodes[node].transactions.describe("tx").state


async def complete(world: CoordinatorWorld, node: int) -> None:
    for _ in range(200):
        await world.settle()
        if state(world, node) is TransactionState.COMPLETE_COMMIT:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the transaction is not completed")


def test_no_marker_goes_before_the_outcome_is_replicated(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        peer = Peer(world)
        await begun(world, ended=True)
        ends = [world.nodes[1].partitions[ORDERS[0]].log.log_end_offset]
        await world.turns(100)
        assert (peer.got, ends) == ([], [0])
        await complete(world, 1)
        assert peer.got == [(2, [ORDERS[1]])]
        assert world.nodes[1].partitions[ORDERS[0]].log.log_end_offset == 1, "and one here"

    play(tmp_path, work)


@pytest.mark.parametrize("code", [3, 6, 56])  # UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR
def test_a_marker_is_tried_again_at_the_next_leader_and_only_there(tmp_path: Path, code: int) -> None:
    async def work(world: CoordinatorWorld) -> None:
        peer = Peer(world)
        peer.codes[ORDERS[1]] = code
        await begun(world, ended=True)
        while len(peer.got) < 2:
            await world.settle()
        assert len(peer.got) == 2, "once a pause"
        assert state(world, 1) is TransactionState.PREPARE_COMMIT
        world.move(ORDERS[1], 1)
        await complete(world, 1)
        assert {tuple(partitions) for _, partitions in peer.got} == {(ORDERS[1],)}
        ends = [world.nodes[1].partitions[each].log.log_end_offset for each in ORDERS]
        assert ends == [1, 1], "one marker each"

    play(tmp_path, work)


def test_the_next_coordinator_completes_what_was_decided(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        peer = Peer(world)
        peer.codes = dict.fromkeys(ORDERS, 6)
        await begun(world, ended=True)
        await world.settle()
        assert state(world, 1) is TransactionState.PREPARE_COMMIT
        sent = len(peer.got)
        world.move(STATES, 2)
        assert world.nodes[1].transactions.transactions() == []
        peer.codes = {}
        await complete(world, 2)
        assert {broker for broker, _ in peer.got[sent:]} == {1}, "the former coordinator sends no more"
        with pytest.raises(NotCoordinatorError):
            state(world, 1)

    play(tmp_path, work)


def test_an_outcome_that_was_not_replicated_was_never_decided(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        Peer(world)
        await begun(world, ended=True)
        world.move(STATES, 2)
        await world.settle()
        await world.turns(100)
        assert state(world, 2) is TransactionState.ONGOING
        assert all(world.nodes[1].partitions[each].log.log_end_offset == 0 for each in ORDERS)

    play(tmp_path, work)


def test_transactions_of_one_request_wait_for_their_replicas_together(tmp_path: Path) -> None:
    """A broker sends what many producers begin in one request: one after another would take as many round trips."""
    names = ["a", "b", "c"]

    def made(*_: str, **fields: Any) -> Any:
        return SimpleNamespace(**fields)

    async def beside(function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)

    async def work(world: CoordinatorWorld) -> None:
        transactions = world.nodes[1].transactions
        producers = [transactions.init_producer_id(name, 10_000, None) for name in names]
        await world.settle()
        asked = [
            made(
                transactional_id=name,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                verify_only=False,
                topics=[made(name="orders", partitions=[0, 1])],
            )
            for name, producer in zip(names, producers, strict=True)
        ]
        broker = made(transactions=transactions, has_partition=lambda *_: True)
        ctx: Any = made(version=5, broker=broker, beside=beside, make=made, respond=made)
        answer = asyncio.ensure_future(add_partitions_to_txn(ctx, made(transactions=asked)))
        await world.turns()
        assert {transactions.describe(name).state for name in names} == {TransactionState.ONGOING}
        assert not answer.done(), "no replica has any of them"
        await world.settle()
        results = (await answer).results_by_transaction
        assert [each.transactional_id for each in results] == names
        codes = [
            partition.partition_error_code
            for each in results
            for topic in each.topic_results
            for partition in topic.results_by_partition
        ]
        assert codes == [0] * 6

    play(tmp_path, work)
