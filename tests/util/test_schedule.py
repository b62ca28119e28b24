from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from stratalog.util.clock import SYSTEM_CLOCK
from stratalog.util.schedule import Retries, Schedule
from stratalog.util.worker_pool import WorkerPool

_LONG_MS = 3_600_000


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    found = WorkerPool("test", 4)
    yield found
    found.close()


@pytest.fixture
def schedule() -> Iterator[Schedule]:
    found = Schedule("test", _LONG_MS, SYSTEM_CLOCK, Retries(), held=True)
    found.start()
    yield found
    found.close()


def test_delays_are_spread_and_grow_with_failures_up_to_a_bound() -> None:
    retries = Retries(first_ms=1_000, max_ms=30_000, jitter=0.1)
    assert retries.delay_ms(30_000, 0, 0.5) == 30_000
    assert retries.delay_ms(30_000, 0, 0.0) == 27_000
    assert retries.delay_ms(30_000, 0, 0.999999) < 33_000
    pauses = [retries.delay_ms(30_000, failures, 0.5) for failures in range(1, 8)]
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
    assert [retries.delay_ms(100, n, 0.5) for n in (1, 2, 3, 100)] == [100, 200, 400, 30_000]
    assert retries.delay_ms(120_000, 10_000, 0.5) == 120_000


def test_a_job_runs_at_once_and_again_when_poked(schedule: Schedule, pool: WorkerPool) -> None:
    ran = threading.Semaphore(0)
    job = schedule.add("job", lambda: (ran.release(), True)[1], pool)
    assert ran.acquire(timeout=30)
    for _ in range(3):
        assert schedule.wait_idle(30)
        schedule.poke([job])
        assert ran.acquire(timeout=30)


def test_a_job_that_is_poked_while_it_runs_runs_once_more(schedule: Schedule, pool: WorkerPool) -> None:
    began, go_on, runs = threading.Semaphore(0), threading.Semaphore(0), []

    def run() -> bool:
        runs.append(threading.get_ident())
        began.release()
        assert go_on.acquire(timeout=30)
        return True

    job = schedule.add("job", run, pool)
    assert began.acquire(timeout=30)
    for _ in range(5):
        schedule.poke([job])
    assert len(runs) == 1
    go_on.release()
    assert began.acquire(timeout=30)
    go_on.release()
    assert schedule.wait_idle(30)
    assert len(runs) == 2


def test_a_job_that_raises_is_logged_and_comes_again(
    schedule: Schedule, pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    ran = threading.Semaphore(0)

    def run() -> bool:
        ran.release()
        raise RuntimeError("a bug")

    with caplog.at_level(logging.ERROR):
        schedule.add("the job", run, pool)
        assert ran.acquire(timeout=30)
        assert ran.acquire(timeout=30), "the first retry comes soon"
        assert schedule.wait_idle(30)
    assert "the job failed" in caplog.text


def test_a_job_of_once_is_tried_until_it_goes_well(schedule: Schedule, pool: WorkerPool) -> None:
    answers = [False, True]
    done = threading.Event()

    def run() -> bool:
        answer = answers.pop(0)
        if answer:
            done.set()
        return answer

    job = schedule.add("job", run, pool, once=True)
    assert done.wait(30)
    assert schedule.wait_idle(30)
    schedule.poke()
    assert job.cancelled
    assert answers == []


def test_a_cancelled_job_does_not_run_again(schedule: Schedule, pool: WorkerPool) -> None:
    ran = threading.Semaphore(0)
    job = schedule.add("job", lambda: (ran.release(), True)[1], pool)
    assert ran.acquire(timeout=30)
    schedule.cancel(job)
    schedule.poke([job])
    other = threading.Event()
    schedule.add("other", lambda: (other.set(), True)[1], pool)
    assert other.wait(30)
    assert not ran.acquire(blocking=False)


def test_nothing_runs_before_start_and_after_close(pool: WorkerPool) -> None:
    schedule = Schedule("test", _LONG_MS, SYSTEM_CLOCK, Retries(), held=True)
    runs: list[int] = []
    schedule.add("job", lambda: (runs.append(1), True)[1], pool)
    assert schedule.wait_idle(0)
    schedule.close()
    schedule.start()
    assert runs == []


# --- without a pool, at a steady pace ---------------------------------------------------------------------------------


def test_a_task_runs_again_after_its_period_and_not_after_close() -> None:
    schedule = Schedule("test", _LONG_MS)
    ran = threading.Semaphore(0)
    schedule.add("tick", ran.release, interval_ms=1)
    assert all(ran.acquire(timeout=60) for _ in range(3))
    schedule.close()
    while ran.acquire(blocking=False):
        continue
    assert not ran.acquire(timeout=0.05)


def test_a_task_that_fails_is_logged_and_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    schedule = Schedule("test", _LONG_MS)
    twice = threading.Semaphore(0)

    def fail() -> None:
        twice.release()
        raise RuntimeError("no luck")

    other = threading.Event()
    with caplog.at_level(logging.ERROR):
        schedule.add("unlucky", fail, interval_ms=1)
        schedule.add("lucky", other.set, delay_ms=5, once=True)
        assert other.wait(60)
        assert twice.acquire(timeout=60)
        assert twice.acquire(timeout=60)
    schedule.close()
    assert "unlucky failed" in caplog.text
    assert "no luck" in caplog.text


def test_tasks_run_in_the_order_of_their_time() -> None:
    schedule = Schedule("test", _LONG_MS)
    order: list[str] = []
    done = threading.Event()
    schedule.add("late", lambda: (order.append("late"), done.set()), delay_ms=40, once=True)
    schedule.add("early", lambda: order.append("early"), delay_ms=1, once=True)
    assert done.wait(60)
    schedule.close()
    assert order == ["early", "late"]
