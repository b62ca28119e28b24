"""A Fetch that waits for `fetch.min.bytes`: it ends when there are so many, and an append does not mean a read for
it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stratalog.broker.fetch.fetch_frames import FetchPartition
from stratalog.broker.fetch.fetching import FetchPlan, PendingFetch, WantedPartition, WantedTopic, read_plan
from stratalog.broker.server.server import Broker
from stratalog.engine.partition import Partition
from stratalog.log.format.values import Isolation
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record

T = TypeVar("T")
BATCH = build_batch([Record(0, 1, None, b"v" * 100)])


class World:
    """A broker with a topic, and what is done on its loop."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.answers = 0

    def on_loop(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            done = function()
            await asyncio.sleep(0)  # waiters are notified in a later turn
            await asyncio.sleep(0)
            return done

        return asyncio.run_coroutine_threadsafe(run(), self.broker.services.loop).result(30)

    def partition(self, number: int = 0) -> Partition:
        found = self.broker.services.partition("t", number)
        assert found is not None
        return found

    def wait_for(self, min_bytes: int, *offsets: int, isolation: Isolation = Isolation.HIGH_WATERMARK) -> PendingFetch:
        """Wait for so many bytes behind these offsets of partitions 0, 1, ..."""
        wanted = [
            WantedPartition(self.partition(number), FetchPartition(number, -1, offset, -1, 1 << 20), None)
            for number, offset in enumerate(offsets)
        ]
        plan = FetchPlan([WantedTopic(b"t", wanted)], isolation, min_bytes, 1 << 24, 600_000, -1)

        def answered() -> None:
            self.answers += 1

        return self.on_loop(lambda: PendingFetch(self.broker.services, plan, read_plan(plan), answered))

    def append(self, number: int = 0, batch: bytes = BATCH, **options: Any) -> None:
        self.on_loop(lambda: self.partition(number).append(batch, **options))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Broker(data_dir=tmp_path, config={"transaction.partition.verification.enable": False}) as broker:
        broker.services.topics.create("t", 2)
        yield World(broker)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that are read."""
    found: list[int] = []
    read = Partition.read

    def counted(self: Partition, offset: int, *arguments: Any, **options: Any) -> Any:
        found.append(offset)
        return read(self, offset, *arguments, **options)

    monkeypatch.setattr(Partition, "read", counted)
    return found


def test_many_who_wait_are_not_read_for_at_every_append(world: World, reads: list[int]) -> None:
    world.append()
    for _ in range(50):
        world.wait_for(10 * len(BATCH), 1)
    reads.clear()
    for _ in range(9):
        world.append()
    assert (world.answers, reads) == (0, [])
    world.append()
    for _ in range(50):  # a few in each turn
        world.on_loop(lambda: None)
    assert world.answers == 50


def test_an_append_does_not_mean_a_question_for_each_who_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they wait: at the end, or behind records that are not enough."""
    asked: list[Partition] = []
    changed = PendingFetch.changed

    def counted(self: PendingFetch, partition: Partition) -> bool:
        asked.append(partition)
        return changed(self, partition)

    monkeypatch.setattr(PendingFetch, "changed", counted)
    world.append()
    for _ in range(20):
        world.wait_for(10 * len(BATCH), 1, 0)
        world.wait_for(10 * len(BATCH), 0)
    world.append()
    assert len(asked) == 20  # those behind a record are notified once where it lies
    for _ in range(7):
        world.append()
    assert (world.answers, len(asked)) == (0, 20)
    world.append()
    assert (world.answers, len(asked)) == (20, 40)
    world.append(1)
    assert (world.answers, len(asked)) == (40, 60)


class AskedAlways(PendingFetch):
    """The plain twin: counts at every change."""

    @property
    def missing(self) -> int:
        return 0

    @missing.setter
    def missing(self, value: int) -> None:
        pass


@pytest.mark.parametrize("seed", range(6))
def test_a_wait_ends_when_it_would_if_it_were_asked_after_every_change(world: World, seed: int) -> None:
    """Whatever happens to two partitions: appends, transactions, rolls, records deleted, truncations."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    answered: list[set[int]] = [set(), set()]
    waiting = 0
    open_transactions: dict[int, int] = {}
    producer_ids = count(7)

    def begin() -> None:
        nonlocal waiting
        wanted = []
        for number in chance.sample((0, 1), chance.choice((1, 2))):
            log = world.partition(number).log
            offset = chance.choice((log.log_end_offset, chance.randint(log.log_start_offset, log.log_end_offset)))
            max_bytes = chance.choice((1 << 20, 500))
            wanted.append(
                WantedPartition(world.partition(number), FetchPartition(number, -1, offset, -1, max_bytes), None)
            )
        isolation = chance.choice((Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED))
        min_bytes = chance.choice((1, 170, 400, 1500, 4000))
        plan = FetchPlan([WantedTopic(b"t", wanted)], isolation, min_bytes, 1 << 24, 600_000, -1)
        first = read_plan(plan)
        if first.urgent or first.size >= min_bytes:
            return
        for kind, which in ((PendingFetch, 0), (AskedAlways, 1)):
            kind(world.broker.services, plan, first, partial(answered[which].add, waiting))
        waiting += 1

    def change(number: int) -> None:
        partition = world.partition(number)
        log = partition.log
        what = chance.randrange(20)
        if what == 0:
            log.roll()
        elif what == 1:
            log.increment_log_start_offset(chance.randint(log.log_start_offset, log.log_end_offset), "client")
        elif what == 2 and not open_transactions:
            log.truncate_to(chance.randint(log.log_start_offset, log.log_end_offset))
            log.advance_high_watermark()
        elif what < 6 and number not in open_transactions:
            open_transactions[number] = next(producer_ids)
            partition.append(transactional(open_transactions[number]))
        elif what < 10 and number in open_transactions:
            producer_id = open_transactions.pop(number)
            marker = end_transaction_marker(
                chance.choice((ControlType.COMMIT, ControlType.ABORT)),
                producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1,
            )  # fmt: skip
            partition.append(marker, origin="coordinator")
        else:
            partition.append(BATCH)
        world.broker.services.purgatory.notify(partition)  # whatever it was

    for _ in range(150):
        world.on_loop(begin)
        for _ in range(chance.choice((1, 1, 3))):
            numbers = chance.choice(((0,), (1,), (0, 1), (1, 1, 0)))
            world.on_loop(lambda numbers=numbers: [change(number) for number in numbers])  # type: ignore[misc]
        assert answered[0] == answered[1]
    assert len(answered[0]) > 50


def transactional(producer_id: int) -> bytes:
    return build_batch(
        [Record(0, 1, None, b"v" * 400)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def test_bytes_are_counted_over_all_partitions_and_from_the_offset_on(world: World) -> None:
    for _ in range(3):
        world.append()
    world.wait_for(4 * len(BATCH), 1, 0)  # two of partition 0 are there
    world.append(1)
    assert world.answers == 0
    world.append(0)
    assert world.answers == 1


def test_no_one_waits_for_more_of_a_segment_that_is_sealed(world: World) -> None:
    """A read gives what one segment has. As Kafka's `DelayedFetch` for an offset on an older segment."""
    world.wait_for(3 * len(BATCH), 0)
    world.append()
    log = world.partition().log
    world.on_loop(log.roll)
    assert world.answers == 0
    world.append()
    assert world.answers == 1


def test_what_is_not_committed_does_not_count(world: World) -> None:
    world.wait_for(2 * len(BATCH), 0, isolation=Isolation.TXN_COMMITTED)
    open_batch = build_batch(
        [Record(0, 1, None, b"v" * 400)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    world.append(batch=open_batch)
    for _ in range(5):
        world.append()
    assert world.answers == 0
    marker = end_transaction_marker(
        ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    world.append(batch=marker, origin="coordinator")
    assert world.answers == 1


def test_a_wait_ends_when_its_offset_is_no_longer_there(world: World) -> None:
    for _ in range(3):
        world.append()
    world.wait_for(100 * len(BATCH), 0)
    world.on_loop(lambda: world.partition().log.increment_log_start_offset(2, "client"))
    world.append()
    assert world.answers == 1


def test_nothing_is_left_on_a_partition_of_those_who_waited(world: World) -> None:
    for _ in range(3):
        cancelled = world.wait_for(1, 0)
        world.on_loop(cancelled.cancel)
        assert world.partition()._listeners == []
    for offset in range(3):
        world.wait_for(1, offset)
        assert len(world.partition()._listeners) == 1
        world.append()
        assert world.partition()._listeners == []
    assert world.answers == 3


@pytest.mark.parametrize("isolation", [Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED])
def test_at_the_end_of_a_log_nothing_is_read_and_the_answer_is_the_same(
    world: World, reads: list[int], isolation: Isolation
) -> None:
    for _ in range(3):
        world.append()
    world.on_loop(lambda: world.partition().log.increment_log_start_offset(1, "client"))
    wanted = WantedPartition(world.partition(), FetchPartition(0, -1, 3, -1, 1 << 20), None)
    plan = FetchPlan([WantedTopic(b"t", [wanted])], isolation, 1, 1 << 24, 500, -1)
    ((_, (answer,)),) = world.on_loop(lambda: read_plan(plan).results)
    assert reads == []
    data = world.partition().read(3, 1 << 20, isolation=isolation)
    assert data.slice is None
    assert answer[:5] == (0, 0, data.high_watermark, data.last_stable_offset, data.log_start_offset)
    assert answer.records == b""
    assert (answer.aborted is None, list(answer.aborted or ())) == (data.aborted is None, data.aborted or [])
