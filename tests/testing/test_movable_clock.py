"""A clock that is moved: who follows it is woken, and waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from stratalog.testing import movable_clock
from stratalog.testing.movable_clock import MovableClock
from stratalog.util import Schedule, WorkerPool

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def schedule(clock: MovableClock) -> Iterator[Schedule]:
    schedule = Schedule("jobs", HOUR_MS, clock)
    yield schedule
    schedule.close()


def test_both_clocks_move_by_as_much(clock: MovableClock) -> None:
    before = clock.now_ms(), clock.monotonic()
    clock.advance(days=1, hours=1, minutes=1, seconds=1, milliseconds=500)
    moved_s = 90061.5
    assert moved_s * 1000 <= clock.now_ms() - before[0] < (moved_s + 30) * 1000
    assert moved_s <= clock.monotonic() - before[1] < moved_s + 30


@pytest.mark.parametrize("has_pool", [False, True])
def test_an_advance_returns_when_the_jobs_that_are_due_are_done(
    clock: MovableClock, schedule: Schedule, has_pool: bool
) -> None:
    pool = WorkerPool("pool", 1) if has_pool else None
    done: list[str] = []
    release = threading.Event()

    def slow() -> None:
        release.wait()
        done.append("slow")

    schedule.add("far", lambda: done.append("far"), pool, delay_ms=10 * HOUR_MS)
    schedule.add("slow", slow, pool, delay_ms=HOUR_MS, interval_ms=100 * HOUR_MS)
    later = threading.Timer(0.05, release.set)
    later.start()
    clock.advance(hours=2)
    assert done == ["slow"]
    clock.advance(hours=9)
    assert done == ["slow", "far"]
    later.join()
    if pool is not None:
        pool.close()


def test_what_a_job_begins_is_waited_for_as_well(clock: MovableClock, schedule: Schedule) -> None:
    done: list[int] = []
    schedule.add("one", lambda: schedule.add("two", lambda: done.append(2), once=True), delay_ms=HOUR_MS, once=True)
    clock.advance(hours=1)
    assert done == [2]


def test_who_sleeps_is_woken(clock: MovableClock) -> None:
    woken = threading.Event()

    def sleep() -> None:
        clock.sleep(3600)
        woken.set()

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    while not clock._followers:
        sleeper.join(0.001)
    clock.advance(hours=1)
    sleeper.join()
    assert woken.is_set()


def test_the_timers_of_a_loop_have_run_and_what_they_began_is_over(clock: MovableClock) -> None:
    done: list[str] = []
    loop = clock.new_event_loop()

    async def several_turns() -> None:
        await asyncio.sleep(1800)
        for _ in range(100):
            await asyncio.sleep(0)
        done.append(await loop.run_in_executor(None, lambda: "elsewhere"))

    loop.call_later(600, done.append, "timer")
    task = loop.create_task(several_turns())
    loop.call_later(4000, done.append, "later")
    started = threading.Event()
    loop.call_soon(started.set)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    started.wait()
    try:
        clock.advance(hours=1)
        assert done == ["timer", "elsewhere"]
        clock.advance(hours=1)
        assert done == ["timer", "elsewhere", "later"]
        assert task.done()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    clock.advance(hours=1)  # a loop that has ended is not waited for


def test_work_that_does_not_end_is_named(
    clock: MovableClock, schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    schedule.add("stuck", release.wait, delay_ms=HOUR_MS)
    monkeypatch.setattr(movable_clock, "PATIENCE_S", 0.05)
    with pytest.raises(TimeoutError, match="jobs"):
        clock.advance(hours=2)
    release.set()


def test_it_does_not_run_backwards(clock: MovableClock) -> None:
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(seconds=-1)
