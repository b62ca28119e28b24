from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from stratalog.errors import QueueFullError
from stratalog.util.worker_pool import WorkerPool


class Gate:
    """Work that stands still until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.done = threading.Semaphore(0)

    def work(self) -> None:
        self.begun.release()
        self.open.wait(60)
        self.done.release()

    def wait_begun(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.open.set()


def test_no_more_work_than_there_are_threads_is_done_at_a_time(gate: Gate) -> None:
    pool = WorkerPool("test", 2)
    for _ in range(5):
        pool.submit(gate.work)
    gate.wait_begun(2)
    assert (pool.busy, pool.pending, pool.idle_ratio) == (2, 3, 0.0)
    gate.open.set()
    gate.wait_begun(3)
    pool.close()
    assert (pool.busy, pool.pending, pool.idle_ratio) == (0, 0, 1.0)


def test_a_full_queue_refuses_and_takes_work_again_when_there_is_room(gate: Gate) -> None:
    pool = WorkerPool("readers", 1, pending_max=2)
    pool.submit(gate.work)
    gate.wait_begun(1)
    pool.submit(gate.work)
    pool.submit(gate.work)
    with pytest.raises(QueueFullError, match="readers: 2 tasks wait for 1 threads, which is the limit"):
        pool.submit(gate.work)
    gate.open.set()
    gate.wait_begun(2)
    for _ in range(3):
        assert gate.done.acquire(timeout=60)
    pool.submit(gate.work)
    gate.wait_begun(1)
    pool.close()


def test_a_larger_size_begins_what_waits_and_a_smaller_one_lets_threads_end(gate: Gate) -> None:
    pool = WorkerPool("test", 1)
    for _ in range(4):
        pool.submit(gate.work)
    gate.wait_begun(1)
    pool.resize(3)
    gate.wait_begun(2)
    assert (pool.busy, pool.pending) == (3, 1)
    pool.resize(1)
    gate.open.set()
    gate.wait_begun(1)
    again = Gate()
    for _ in range(3):
        pool.submit(again.work)
    again.wait_begun(1)
    assert not again.begun.acquire(timeout=0.05)
    assert pool.size == 1
    again.open.set()
    again.wait_begun(2)
    pool.close()


def test_work_that_raises_is_logged_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = WorkerPool("test", 1), threading.Event()

    def fail() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR):
        pool.submit(fail)
        pool.submit(done.set)
        assert done.wait(60)
    pool.close()
    assert "test: a task failed" in caplog.text


def test_a_closed_pool_forgets_what_waits_and_takes_nothing(gate: Gate) -> None:
    pool = WorkerPool("test", 1)
    pool.submit(gate.work)
    gate.wait_begun(1)
    never = threading.Event()
    pool.submit(never.set)
    closing = threading.Thread(target=pool.close)
    closing.start()
    while pool.pending:
        threading.Event().wait(0.001)
    gate.open.set()
    closing.join(60)
    assert not never.is_set()
    with pytest.raises(RuntimeError, match="test is closed"):
        pool.submit(never.set)
