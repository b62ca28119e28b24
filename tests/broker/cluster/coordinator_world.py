"""Two brokers in one process: real logs and coordinators, a controller and a replication that are played.

What the metadata says reaches each broker when `deliver` is called, and its coordinators when `hear` is: between the
two its replicas follow the metadata already, as they do on the observer's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests.sim.model_controller import ModelPartition

from stratalog.broker.coordinator_loading import CoordinatorLoading
from stratalog.broker.groups import CommittedOffset, GroupCoordinator, TopicPartition
from stratalog.broker.metadata import FinalizedFeatures
from stratalog.broker.purgatory import Purgatory
from stratalog.broker.share import SharePersister, ShareStates
from stratalog.broker.transactions import TransactionCoordinator
from stratalog.config import BrokerConfig, LogConfig
from stratalog.engine import Partition
from stratalog.engine.replication import LeaderAndFollowerThrottle, ReplicationServices, cut_at_divergence
from stratalog.log import PartitionLog
from stratalog.log.format import Isolation
from stratalog.util import SYSTEM_CLOCK
from stratalog.wire import ApiKey

GROUPS, IDS, STATES = "__consumer_offsets", "__transaction_state", "__share_group_state"
CONFIG = {"offsets.commit.timeout.ms": "60000", "group.initial.rebalance.delay.ms": "0"}
ORDERS = TopicPartition("orders", 0)
#: All that there is, and how many partitions of each.
TOPICS = {GROUPS: 2, IDS: 1, STATES: 1, "orders": 2}


class _Workers:
    """Does on the loop what workers do beside it, a turn later."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)


class _Metadata:
    topics_version = new_topics_version = 1
    features = FinalizedFeatures(33, 1, {"group.version": 1, "transaction.version": 2})

    def resource_configs(self, resource_type: int, name: str) -> dict[str, str]:
        return {}

    def topic_by_id(self, topic_id: UUID) -> Any:
        return self.topic("orders") if topic_id == UUID(int=1) else None

    def topic(self, name: str) -> Any:
        count = TOPICS.get(name)
        return None if count is None else SimpleNamespace(name=name, partition_count=count, topic_id=UUID(int=1))


class PlayedNode:
    """One broker. It is its own `ClusterMembership`, as far as transactions ask it."""

    def __init__(self, world: CoordinatorWorld, node_id: int, directory: Path) -> None:
        self.world, self.node_id, self.broker_epoch = world, node_id, 100 + node_id
        self.partitions: dict[TopicPartition, Partition] = {}
        for topic, count in TOPICS.items():
            for number in range(count):
                log = PartitionLog.open(
                    directory / f"{topic}-{number}", LogConfig.from_properties({}, None), clean_shutdown=True
                )
                self.partitions[TopicPartition(topic, number)] = Partition(log, UUID(int=1))
        ids = iter(range(1000, 2000))
        storage: Any = SimpleNamespace(
            config=BrokerConfig.from_properties(CONFIG),
            clock=SYSTEM_CLOCK,
            metadata=_Metadata(),
            logs=self,
            producer_ids=SimpleNamespace(next=lambda: next(ids)),
            cluster=self,
        )
        workers: Any = _Workers(world.loop)
        purgatory = Purgatory(world.loop)
        self.storage, self.workers, self.purgatory = storage, workers, purgatory
        self.states = ShareStates(storage, workers)
        self.states.start_by_partition(purgatory)
        self.persister = SharePersister(self.states, cast("Any", self))
        self.groups = GroupCoordinator(storage, workers, self.persister)
        self.groups.start_by_partition(purgatory)
        self.transactions = TransactionCoordinator(storage, workers, self.groups)
        self.transactions.start_by_partition(purgatory, cast("Any", self))
        #: Metadata that has not arrived, and elections that the coordinators have not heard of.
        self.published: deque[tuple[TopicPartition, ModelPartition]] = deque()
        self.unheard: deque[Callable[[], None]] = deque()
        self.services = ReplicationServices(
            cluster=cast("Any", self),
            clock=SYSTEM_CLOCK,
            lag_max_ms=1_000_000,
            submit=lambda *_: None,
            throttle=LeaderAndFollowerThrottle(storage.config, SYSTEM_CLOCK, node_id).leader,
        )

    # --- LogManager, ClusterView, ClusterMembership -------------------------------------------------------------------

    def get(self, topic: str, number: int) -> Partition | None:
        return self.partitions.get(TopicPartition(topic, number))

    def isr_epoch(self, broker: int) -> int | None:
        return 100 + broker

    def leader(self, topic: str, number: int) -> tuple[int, int] | None:
        known = self.world.assigned.get(TopicPartition(topic, number))
        return None if known is None else (known.leader, known.leader_epoch)

    async def ask(self, broker: int, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        return await self.world.answer(broker, key, fields)

    # --- what happens -------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Let the next change of the metadata arrive."""
        at, assigned = self.published.popleft()
        partition = self.partitions[at]
        before = partition.leader_epoch
        partition.take_assignment(assigned, self.services)
        loading = self._loading(at.topic)
        if loading is None:
            return
        if partition.leader_epoch < 0:
            self.unheard.append(lambda: loading.resign(at.partition))
        elif partition.leader_epoch != before:
            self.unheard.append(lambda: loading.elect(at.partition, assigned.leader_epoch))

    def hear(self) -> None:
        self.unheard.popleft()()

    def catch_up(self) -> None:
        while self.published:
            self.deliver()
        while self.unheard:
            self.hear()

    def _loading(self, topic: str) -> CoordinatorLoading[Any] | None:
        if topic == GROUPS:
            return self.groups.loading
        if topic == STATES:
            return self.states.loading
        return self.transactions.loading if topic == IDS else None

    # --- a client -----------------------------------------------------------------------------------------------------

    async def commit(self, group: str, offset: int) -> None:
        """Commit; raises as the coordinator does."""
        await self.groups.commit(group, "", None, -1, {ORDERS: CommittedOffset(offset, "", 0)})

    async def committed(self, group: str) -> int:
        """Fetch the commit, as OffsetFetch does; -1 for none."""
        self.groups.check_fetch(group, None, -1)
        found = self.groups.commits.committed.get(group, ORDERS)
        await self.groups.log.settled(group)
        return -1 if found is None else found.offset


class CoordinatorWorld:
    """Brokers 1 and 2, both in sync all the time; broker 1 leads everything first."""

    def __init__(self, directory: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self.assigned = {
            TopicPartition(topic, number): ModelPartition((1, 2), (1, 2), leader=1, leader_epoch=0)
            for topic, count in TOPICS.items()
            for number in range(count)
        }
        self.answer: Callable[[int, ApiKey, dict[str, Any]], Any] = self._nothing
        self.nodes = {node: PlayedNode(self, node, directory / str(node)) for node in (1, 2)}
        for at in self.assigned:
            self._publish(at)
        for node in self.nodes.values():
            node.catch_up()

    @staticmethod
    async def _nothing(broker: int, key: ApiKey, fields: dict[str, Any]) -> Any:
        raise AssertionError(f"nothing is asked of broker {broker}: {key.name}, {fields}")

    def _publish(self, at: TopicPartition) -> None:
        for node in self.nodes.values():
            node.published.append((at, self.assigned[at]))

    def elect(self, at: TopicPartition, leader: int) -> None:
        """Let another broker lead; no one knows yet."""
        known = self.assigned[at]
        self.assigned[at] = replace(
            known, leader=leader, leader_epoch=known.leader_epoch + 1, partition_epoch=known.partition_epoch + 1
        )
        self._publish(at)

    def move(self, at: TopicPartition, leader: int) -> None:
        """Let another broker lead, and all know it at once."""
        self.elect(at, leader)
        for node in self.nodes.values():
            node.catch_up()

    def replicate(self, at: TopicPartition, *, batches: bool = True) -> None:
        """Let the follower fetch once, if both brokers agree on who leads. Without `batches` the answer is lost."""
        assigned = self.assigned[at]
        leader = self.nodes[assigned.leader].partitions[at]
        node = self.nodes[3 - assigned.leader]
        follower = node.partitions[at]
        epoch = assigned.leader_epoch
        if leader.leader_epoch != epoch or follower.role.leader_epoch != epoch:
            return
        log, source = follower.log, leader.log
        while log.leader_epochs.latest_epoch is not None:
            last = log.leader_epochs.latest_epoch
            known, end = source.leader_epochs.end_offset_for(last, source.log_end_offset)
            if known == last and end >= log.log_end_offset:
                break
            cut = cut_at_divergence(
                known,
                end,
                log_end=log.log_end_offset,
                high_watermark=log.high_watermark,
                end_of_epoch=log.leader_epochs.end_offset_for,
            )
            before = log.log_end_offset
            log.truncate_to(cut)  # at the end too: an epoch in which nothing was written goes
            if (log.log_end_offset, log.leader_epochs.latest_epoch) == (before, last):
                break
        offset = log.log_end_offset
        leader.note_fetch(node.node_id, node.broker_epoch, offset, 0)
        if batches:
            data = leader.read(offset, 1 << 20, isolation=Isolation.LOG_END)
            records = b"" if data.slice is None else bytes(data.slice.read())
            follower.append_as_follower(
                records,
                leader_epoch=epoch,
                offset=offset,
                high_watermark=source.high_watermark,
                log_start_offset=0,
            )

    async def turns(self, count: int = 20) -> None:
        """Let whatever is due happen."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Let everything arrive, be replicated and be answered."""
        for node in self.nodes.values():
            node.catch_up()
        for _ in range(3):
            for at in self.assigned:
                self.replicate(at)
            await self.turns()

    def close(self) -> None:
        for node in self.nodes.values():
            node.persister.close()
            node.states.close()
            node.groups.close()
            node.transactions.close()
            for partition in node.partitions.values():
                partition.log.close()


def play(directory: Path, work: Callable[[CoordinatorWorld], Awaitable[None]]) -> None:
    """Let work be done with a world, on a loop of its own."""

    async def run() -> None:
        world = CoordinatorWorld(directory)
        try:
            await work(world)
        finally:
            world.close()

    asyncio.run(run())
