"""Commits of thousands of partitions at once: encoded beside the loop, and lying in the log where memory says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pytest
from tests.support.wire import Wire

from stratalog.broker.coordinator_log import TransactionalWrite
from stratalog.broker.groups.commits import EncodedCommits, GroupCommits
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.server.server import SETTINGS_FOR_TESTS, Broker
from stratalog.wire.api_keys import ApiKey

_T = TypeVar("_T")

PARTITIONS = 2000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("data"), config=SETTINGS_FOR_TESTS) as broker:
        for name in ("first", "second"):
            broker.services.topics.create(name, 1)
        yield broker


def on_loop(broker: Broker, call: Callable[[], _T]) -> _T:
    async def run() -> _T:
        return call()

    return asyncio.run_coroutine_threadsafe(run(), broker.services.loop).result(30)


def commit(wire: Wire, group: str, times: int) -> list[int]:
    parts = [{"partition_index": 0, "committed_offset": number} for number in range(times)]
    answer = wire.call(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": name, "partitions": parts} for name in ("first", "second")],
    )
    return [int(part.error_code) for topic in answer.topics for part in topic.partitions]


def test_many_commits_are_encoded_beside_the_loop_and_few_on_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[tuple[int, int | None]] = []
    encode = GroupCommits.encode

    def noted(
        self: GroupCommits,
        group_id: str,
        commits: Mapping[TopicPartition, CommittedOffset],
        transaction: TransactionalWrite | None = None,
    ) -> EncodedCommits:
        threads.append((len(commits), threading.get_ident()))
        return encode(self, group_id, commits, transaction)

    monkeypatch.setattr(GroupCommits, "encode", noted)
    many = {TopicPartition("first", number): CommittedOffset(number, "", 0) for number in range(PARTITIONS)}
    groups = broker.services.groups
    commits = asyncio.run_coroutine_threadsafe(groups.commit("many", "", None, -1, many), broker.services.loop)
    assert set(commits.result(30).values()) == {0}
    with Wire(broker.bootstrap_servers) as wire:
        assert commit(wire, "few", 1) == [0, 0]
    (many_count, beside), (few_count, on_it) = threads
    assert (many_count, few_count) == (PARTITIONS, 2)
    assert beside != broker._thread.ident == on_it


def test_commits_lie_where_they_are_said_to_also_when_others_write_concurrently(broker: Broker) -> None:
    commits = broker.services.groups.commits

    def stored(group: str, **wanted: int) -> EncodedCommits:
        return commits.encode(
            group, {TopicPartition(topic, 0): CommittedOffset(offset, "", 0) for topic, offset in wanted.items()}
        )

    early = on_loop(broker, lambda: stored("early", first=1, second=2))
    late = on_loop(broker, lambda: stored("late", first=3, second=4))
    assert early.first == late.first
    on_loop(broker, lambda: commits.store(late))
    on_loop(broker, lambda: commits.store(early))
    partition = broker.services.partition("__consumer_offsets", 0)
    assert partition is not None
    end = partition.log.log_end_offset
    offsets = {
        group: [each.record_offset for each in commits.committed.of_group(group).values()]
        for group in ("late", "early")
    }
    assert offsets == {"late": [end - 4, end - 3], "early": [end - 2, end - 1]}


def test_a_partition_that_is_named_many_times_is_stored_in_the_order_of_the_request(broker: Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        assert set(commit(wire, "again", 1200)) == {0}
    found = broker.services.groups.commits.committed.of_group("again")
    assert {key.topic: each.offset for key, each in found.items()} == {"first": 1199, "second": 1199}
