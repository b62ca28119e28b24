from __future__ import annotations

import logging
import threading

import pytest

from stratalog.engine.scheduler import Scheduler


def test_a_task_runs_again_after_its_period_and_not_after_close() -> None:
    scheduler = Scheduler()
    ran = threading.Semaphore(0)
    scheduler.schedule("tick", ran.release, period_ms=1)
    assert all(ran.acquire(timeout=10) for _ in range(3))
    scheduler.close()
    while ran.acquire(blocking=False):
        continue
    assert not ran.acquire(timeout=0.05)


def test_a_task_that_fails_is_logged_and_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler()
    twice = threading.Semaphore(0)

    def fail() -> None:
        twice.release()
        raise RuntimeError("no luck")

    other = threading.Event()
    with caplog.at_level(logging.ERROR):
        scheduler.schedule("unlucky", fail, period_ms=1)
        scheduler.schedule("lucky", other.set, delay_ms=5)
        assert other.wait(10)
        assert twice.acquire(timeout=10)
        assert twice.acquire(timeout=10)
    scheduler.close()
    assert "Task unlucky failed" in caplog.text
    assert "no luck" in caplog.text


def test_tasks_run_in_the_order_of_their_time() -> None:
    scheduler = Scheduler()
    order: list[str] = []
    done = threading.Event()
    scheduler.schedule("late", lambda: (order.append("late"), done.set()), delay_ms=40)
    scheduler.schedule("early", lambda: order.append("early"), delay_ms=1)
    assert done.wait(10)
    scheduler.close()
    assert order == ["early", "late"]
