"""Commits of open transactions: when they count, and what they hold up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.transactions.cases import Script, script

from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.pending_offsets import PendingOffsets
from stratalog.broker.server.server import Broker
from stratalog.wire.api_keys import ApiKey

ZERO, ONE = TopicPartition("one", 0), TopicPartition("one", 1)
CONFIG = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


def test_the_end_of_a_transaction_takes_the_groups_of_one_partition_only() -> None:
    pending = PendingOffsets()
    for producer, group, partition in ((1, "a", ZERO), (1, "b", ZERO), (2, "a", ONE)):
        pending.put(producer, group, partition, CommittedOffset(producer, "", 1))
    assert pending.partitions("a") == [ZERO, ONE]
    assert sorted(pending.of_topic("one")) == [("a", ZERO), ("a", ONE), ("b", ZERO)]
    assert pending.take(1, lambda group: group == "a") == {"a": {ZERO: CommittedOffset(1, "", 1)}}
    assert not pending.is_pending("a", ZERO)
    assert pending.is_pending("a", ONE)
    assert pending.is_pending("b", ZERO)
    pending.remove("a", ONE)
    assert not pending.has_group("a")
    assert pending.take(2, lambda _: True) == {"a": {}}
    assert pending.take(3, lambda _: True) == {}


def open_commit(s: Script) -> tuple[int, int]:
    mine = s.init("init", "tx")
    s.commit_offsets("commit", "tx", mine, "g", offset=7, version=5)
    return mine


def plain_commit(s: Script, offset: int) -> None:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    s.asker.call(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "one", "partitions": [partition]}],
    )


def test_a_later_plain_commit_stays_when_the_transaction_is_committed(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        plain_commit(s, 1)
        mine = open_commit(s)
        plain_commit(s, 9)
        s.end("end", "tx", mine, True, version=5)
        (found,) = broker.services.groups.commits.committed.of_group("g").values()
        assert found.offset == 9
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        (found,) = broker.services.groups.commits.committed.of_group("g").values()
        assert found.offset == 9


def expire_on_the_loop(broker: Broker) -> None:
    """A request that is sent next may overtake a mere call on the loop: wait for its end."""

    async def expire() -> int:
        return sum(broker.services.groups.expire())

    asyncio.run_coroutine_threadsafe(expire(), broker.services.loop).result(30)


def test_a_group_with_an_open_commit_is_not_forgotten_with_time(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        plain_commit(s, 1)
        mine = open_commit(s)
        groups = broker.services.groups
        later = broker.services.clock.now_ms() + 10 * 24 * 3600 * 1000

        class Later:
            def now_ms(self) -> int:
                return later

            def monotonic(self) -> float:
                return later / 1000

        groups._clock = Later()  # type: ignore[assignment]
        expire_on_the_loop(broker)
        s.offsets("pending", "g", stable=True)
        assert s.answers["pending"]["groups"][0]["topics"][0]["partitions"][0]["error_code"] == 88
        s.end("end", "tx", mine, True, version=5)
        assert groups.commits.committed.of_group("g")[ZERO].offset == 7
        expire_on_the_loop(broker)
        s.offsets("gone", "g", stable=True)
        assert not groups.commits.committed.of_group("g")


@pytest.mark.parametrize("what", ["group", "topic"])
def test_what_is_deleted_takes_its_open_commits_along(tmp_path: Path, what: str) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        mine = open_commit(s)
        if what == "group":
            s.asker.call(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        else:
            s.asker.call(ApiKey.DELETE_TOPICS, 5, topic_names=["one"], timeout=30_000)
        assert not broker.services.groups.commits.pending.has_group("g")
        s.end("end", "tx", mine, True, version=5)
        assert not broker.services.groups.commits.committed.of_group("g")
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        assert not broker.services.groups.commits.committed.of_group("g")


def test_verification_is_switched_on_and_off_while_the_broker_runs(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, script(broker.bootstrap_servers) as s:
        mine = s.init("init", "tx")
        codes = []
        for number, value in enumerate(["true", "false"]):
            entry = {
                "name": "transaction.partition.verification.enable",
                "config_operation": 0,
                "value": value,
            }
            s.asker.call(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                1,
                resources=[{"resource_type": 4, "resource_name": "1", "configs": [entry]}],
            )
            s.produce(f"produce {number}", "tx", mine, version=11)
            answer = s.answers[f"produce {number}"]["responses"][0]["partition_responses"][0]
            codes.append(answer["error_code"])
        assert codes == [120, 0]
