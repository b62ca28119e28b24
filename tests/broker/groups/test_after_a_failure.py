"""What the coordinators know of one owner outlives a failure of another's: a load, an append, a removal that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.groups.scenario import await_coordinator, commit
from tests.support.wire import Wire

from stratalog.broker import coordinator_log
from stratalog.broker.coordinator_log import partition_for
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.server.server import Broker
from stratalog.engine.partition import Partition
from stratalog.errors import KafkaStorageError, UnknownServerError
from stratalog.testing.clock import ManualClock

CONFIG = {
    "offsets.topic.num.partitions": "3",
    "log.cleaner.enable": "false",
    "offsets.retention.minutes": "10",
    "group.initial.rebalance.delay.ms": "0",
}
#: One group in each partition of `__consumer_offsets`.
GROUPS = sorted({partition_for(name, 3): name for name in "abcdefgh"}.items())


def refuse(*_: object, **__: object) -> None:
    raise KafkaStorageError("the disk has failed")


def on_loop(broker: Broker, work: Callable[[], object]) -> object:
    """Do something where the coordinators live."""

    async def run() -> object:
        return work()

    return asyncio.run_coroutine_threadsafe(run(), broker.services.loop).result(30)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_damaged_batch_costs_no_other_commit(tmp_path: Path, damaged: int, is_clean: bool) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create("orders", 2)
        await_coordinator(wire)
        for offset in (1, 2, 3):
            for _, group in GROUPS:
                commit(wire, 8, group, {0: (offset, ""), 1: (offset, "")})
        for partition in broker.services.logs.partitions("__consumer_offsets"):
            partition.log.flush()
        broker.services.logs.write_checkpoints()
    if not is_clean:
        for marker in tmp_path.glob("*clean*"):
            marker.unlink()
    path = next((tmp_path / f"__consumer_offsets-{damaged}").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        committed = broker.services.groups.commits.committed
        for number, group in GROUPS:
            found = sorted(each.offset for each in committed.of_group(group).values())
            assert found == [3, 3], (number, damaged)  # the batch of the second commits is the damaged one


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_group_that_cannot_be_removed_keeps_no_other(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    with (
        Broker(data_dir=tmp_path, config=CONFIG, clock=clock) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        broker.services.topics.create("orders", 2)
        await_coordinator(wire)
        for _, group in GROUPS:
            commit(wire, 8, group, {0: (1, "")})
        clock.advance(10 * 60_000)
        groups = broker.services.groups
        with monkeypatch.context() as patch:
            patch.setattr(groups.log.partition_of(GROUPS[failing][1]), "append", refuse)
            assert on_loop(broker, lambda: sum(groups.expire())) == 2
        assert [group.group_id for group in groups.classics.groups()] == [GROUPS[failing][1]]
        assert on_loop(broker, lambda: sum(groups.expire())) == 1


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_transactional_id_that_cannot_be_forgotten_keeps_no_other(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    config = {"transaction.state.log.num.partitions": "3", "transactional.id.expiration.ms": "60000"}
    with Broker(data_dir=tmp_path, config=config, clock=clock) as broker:
        transactions = broker.services.transactions
        transactions.log._create()
        for _, name in GROUPS:
            on_loop(broker, lambda name=name: transactions.init_producer_id(name, 1_000, None))  # type: ignore[misc]
        clock.advance(10 * 60_000)
        with monkeypatch.context() as patch:
            patch.setattr(transactions.log.partition_of(GROUPS[failing][1]), "append", refuse)
            assert on_loop(broker, lambda: sum(transactions.expire())) == 2
        assert [known.transactional_id for known in transactions.transactions()] == [GROUPS[failing][1]]
        assert on_loop(broker, lambda: sum(transactions.expire())) == 1


def fail_at(partition: Partition, failing: int, patch: pytest.MonkeyPatch) -> None:
    """Have append number `failing` from now on fail, counted from 1."""
    append, calls = partition.append, iter(range(1, 1000))

    def counted(*arguments: Any, **options: Any) -> Any:
        if next(calls) == failing:
            refuse()
        return append(*arguments, **options)

    patch.setattr(partition, "append", counted)


@pytest.mark.parametrize(("count", "codes"), [(350, {0}), (700, {-1})], ids=["one batch", "too large"])
def test_commits_of_one_request_are_in_the_log_all_or_none(
    tmp_path: Path, count: int, codes: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2 KB each: more than 512 KB, and more than max.message.bytes, which Kafka answers with
    UNKNOWN_SERVER_ERROR."""
    _, group = GROUPS[0]
    config = {**CONFIG, "num.partitions": "1"}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create("orders", count)
        await_coordinator(wire)
        assert set(commit(wire, 8, group, dict.fromkeys(range(count), (1, "")))) == {0}
        with monkeypatch.context() as patch:
            fail_at(broker.services.groups.log.partition_of(group), 2, patch)
            assert set(commit(wire, 8, group, dict.fromkeys(range(count), (2, "x" * 2_000)))) == codes
    expected = [2 if codes == {0} else 1] * count
    with Broker(data_dir=tmp_path, config=config) as broker:
        wait = broker.services.groups.loading.wait()
        asyncio.run_coroutine_threadsafe(wait, broker.services.loop).result(30)
        committed = broker.services.groups.commits.committed
        assert [each.offset for each in committed.of_group(group).values()] == expected


def test_of_a_removal_that_fails_halfway_the_same_is_gone_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is expired; what a client deletes goes as a whole."""
    _, group = GROUPS[0]
    clock = ManualClock()
    with Broker(data_dir=tmp_path, config=CONFIG, clock=clock) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create("orders", 20)
        await_coordinator(wire)
        commit(wire, 8, group, dict.fromkeys(range(20), (1, "")))
        groups = broker.services.groups
        clock.advance(10 * 60_000)
        with monkeypatch.context() as patch:
            patch.setattr(coordinator_log, "_PIECE_BYTES", 100)
            fail_at(groups.log.partition_of(group), 3, patch)
            assert on_loop(broker, lambda: sum(groups.expire())) == 0
        left = sorted(groups.commits.committed.of_group(group))
        assert 0 < len(left) < 20
    with Broker(data_dir=tmp_path, config=CONFIG, clock=clock) as broker:
        groups = broker.services.groups
        assert sorted(groups.commits.committed.of_group(group)) == left
        assert on_loop(broker, lambda: sum(groups.expire())) == len(left)
        assert not groups.commits.committed.of_group(group)
        assert groups.classics.groups() == []


def test_too_many_commits_of_a_transaction_are_refused_as_those_without_one(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        await_coordinator(wire)
        commits = broker.services.groups.commits
        write = coordinator_log.TransactionalWrite(1, 0, None)
        many = {TopicPartition("orders", number): CommittedOffset(1, "x" * 2_000, 0) for number in range(700)}
        with pytest.raises(UnknownServerError):
            on_loop(broker, lambda: commits.store(commits.encode("a", many, write), write))
        assert not commits.pending.has_group("a")
