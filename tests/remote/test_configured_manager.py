"""Each key of the broker's configuration is in force where it belongs from the start.

No two of the values are alike.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stratalog.broker.apis import k02_list_offsets
from stratalog.broker.fetch.fetching import FetchRead, PendingRemoteFetch
from stratalog.errors import QueueFullError
from tests.remote.test_manager import RunningWorld, _eventually
from tests.remote.world import World
from tests.util.test_worker_pool import Gate

SETTINGS = {
    "remote.log.manager.copier.thread.pool.size": "3",
    "remote.log.manager.expiration.thread.pool.size": "4",
    "remote.log.manager.follower.thread.pool.size": "5",
    "remote.log.reader.threads": "6",
    "remote.log.reader.max.pending.tasks": "2",
    "remote.log.index.file.cache.total.size.bytes": "123456",
    "remote.log.index.file.cache.ttl.ms": "90000",
    "remote.log.manager.copy.max.bytes.per.second": "7000",
    "remote.log.manager.copy.quota.window.num": "3",
    "remote.log.manager.copy.quota.window.size.seconds": "2",
    "remote.log.manager.fetch.max.bytes.per.second": "8000",
    "remote.log.manager.fetch.quota.window.num": "5",
    "remote.log.manager.fetch.quota.window.size.seconds": "4",
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, broker=SETTINGS) as made:
        yield made


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.open.set()


def test_each_pool_has_its_size(world: World) -> None:
    manager = world.manager
    pools = (manager.limits.copiers, manager.limits.expirers, manager.limits.followers, manager.limits.readers)
    assert [pool.size for pool in pools] == [3, 4, 5, 6]


def test_as_many_reads_wait_as_configured(world: World, gate: Gate) -> None:
    for _ in range(6):
        world.manager.limits.readers.submit(gate.work)
    gate.wait_begun(6)
    for _ in range(2):
        world.manager.limits.readers.submit(gate.work)
    with pytest.raises(QueueFullError, match="2 tasks wait for 6 threads"):
        world.manager.limits.readers.submit(gate.work)
    gate.open.set()


def test_each_quota_has_its_limit_and_its_windows(world: World) -> None:
    copies, fetches = world.manager.limits.copy_quota, world.manager.limits.fetch_quota
    assert (copies.bytes_per_second, fetches.bytes_per_second) == (7_000, 8_000)
    copies.record(600)
    fetches.record(1_600)
    assert (copies.rate(), fetches.rate()) == (300, 400)  # over one window at least: two seconds, four
    world.clock.advance(3 * 2_000 - 1)
    assert copies.rate() > 0
    world.clock.advance(1)
    assert (copies.rate(), fetches.rate()) == (0, pytest.approx(1_600 / 6))
    world.clock.advance(5 * 4_000 - 6_001)
    assert fetches.rate() > 0
    world.clock.advance(1)
    assert fetches.rate() == 0


def test_what_is_copied_counts_for_copies_and_what_is_read_for_reads(world: World) -> None:
    world.append(20)
    segment = world.log.segments[0]
    world.tier()
    copied = world.manager.limits.copy_quota.rate()
    assert copied >= segment.size_bytes / 2
    assert world.manager.limits.fetch_quota.rate() == 0
    read = world.manager.read(world.partition, 0, 1_000).records
    assert world.manager.limits.fetch_quota.rate() == len(read) / 4
    assert world.manager.limits.copy_quota.rate() == copied


def test_the_index_cache_has_its_limit_and_idle_entries_go_with_the_manager_s_looks(world: World) -> None:
    cache = world.manager.index_cache
    assert cache.capacity_bytes == 123_456
    world.append(20)
    world.tier()
    assert world.manager.read(world.partition, 0, 1_000).records
    world.clock.advance(89_999)
    world.manager._look()
    assert len(cache) == 1
    world.clock.advance(1)
    world.manager._look()
    assert len(cache) == 0


def test_copies_deletions_and_what_a_follower_does_run_on_their_own_threads(tmp_path: Path) -> None:
    with RunningWorld(tmp_path, broker={"remote.log.manager.task.interval.ms": "20"}) as world:
        copied_by, deleted_by, followed_by = set[str](), set[str](), set[str]()
        copy, delete = world.rsm.copy_log_segment_data, world.rsm.delete_log_segment_data
        highest = world.rlmm.highest_offset_for_epoch

        def copying(metadata: Any, data: Any) -> Any:
            copied_by.add(_pool())
            return copy(metadata, data)

        def deleting(metadata: Any) -> None:
            deleted_by.add(_pool())
            delete(metadata)

        def looking(*asked: Any) -> Any:
            followed_by.add(_pool())
            return highest(*asked)

        world.rsm.copy_log_segment_data = copying  # type: ignore[method-assign]
        world.rsm.delete_log_segment_data = deleting  # type: ignore[method-assign]
        world.append(40)
        _eventually(lambda: world.manager.copy_lag(world.partition).segments == 0, "copied")
        world.configure(retention_ms=0)
        _eventually(lambda: world.objects() == [], "expired")
        assert (copied_by, deleted_by) == ({"remote-log-copier"}, {"remote-log-expiration"})
        world.manager.stop_partitions([world.partition])
        world.manager.limits.copiers.close()  # what still runs there asks, too
        world.rlmm.highest_offset_for_epoch = looking  # type: ignore[method-assign, assignment]
        world.manager.on_leadership_change([], [world.log])
        _eventually(lambda: bool(followed_by), "followed")
        assert followed_by == {"remote-log-follower"}


def _pool() -> str:
    """The pool of this thread: it is in the thread's name, before its number."""
    return threading.current_thread().name.rpartition("-")[0]


def test_a_fetch_waits_for_the_remote_tier_as_long_as_configured() -> None:
    timers: list[tuple[float, Any]] = []

    def call_later(delay: float, callback: Any) -> Any:
        timers.append((delay, callback))
        return SimpleNamespace(cancel=lambda: None)

    state: Any = SimpleNamespace(
        purgatory=SimpleNamespace(remote_waiting=0, remote_expired=0),
        loop=SimpleNamespace(call_later=call_later),
        config={"remote.fetch.max.wait.ms": 12_345},
    )
    answers: list[Any] = []
    plan: Any = None
    results: Any = [("t", [])]
    PendingRemoteFetch(state, plan, FetchRead(results, 0, False, []), answers.append)
    ((delay, expire),) = timers
    assert (delay, answers, state.purgatory.remote_waiting) == (12.345, [], 1)
    expire()
    assert (answers, state.purgatory.remote_waiting, state.purgatory.remote_expired) == ([results], 0, 1)


def test_a_search_by_time_takes_as_long_as_configured() -> None:
    broker = SimpleNamespace(config={"remote.list.offsets.request.timeout.ms": 4_321})
    ctx: Any = SimpleNamespace(broker=broker)
    assert k02_list_offsets._timeout_ms(ctx, SimpleNamespace()) == 4_321
