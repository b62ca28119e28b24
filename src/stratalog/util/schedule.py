"""Jobs that run again and again: with jitter, slower while they fail, on a pool or on the thread of the schedule."""

from __future__ import annotations

import heapq
import itertools
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from stratalog.util.checksum import crc32c
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.worker_pool import WorkerPool

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retries:
    """Delays before a failed task runs again: after `first_ms`, then twice as long each time up to `max_ms`.

    The first pause is no longer than the tasks' interval, the longest no shorter. `jitter` spreads the tasks of many
    partitions, also those that go well.
    """

    first_ms: int = 500
    max_ms: int = 30_000
    jitter: float = 0.2

    def delay_ms(self, interval_ms: int, failures: int, chance: float) -> float:
        """Return how long to wait after a run that was the `failures`-th failure in a row (0: it went well).

        `chance` in [0, 1) picks a delay within +-`jitter` of what it would be.
        """
        if failures == 0:
            delay = float(interval_ms)
        else:
            delay = min(
                float(min(interval_ms, self.first_ms)) * 2 ** min(failures - 1, 30),
                float(max(interval_ms, self.max_ms)),
            )
        return delay * (1 - self.jitter + 2 * self.jitter * chance)


#: The same pause after every run, however it went.
STEADY = Retries(first_ms=sys.maxsize, max_ms=0, jitter=0.0)


class Job:
    """A job as its schedule knows it. Its state belongs to the schedule's lock."""

    def __init__(
        self, name: str, run: Callable[[], object], pool: WorkerPool | None, *, once: bool, interval_ms: int
    ) -> None:
        self.name = name
        self.run = run
        self.pool = pool
        self.once = once
        self.interval_ms = interval_ms
        self.failures = 0
        self.runs = 0
        self.ticket = 0
        self.running = False
        self.again = False
        self.cancelled = False


class Schedule:
    """Runs jobs at fixed delays, a job never twice at a time. Thread-safe.

    A job that returns False or raises has failed; an error is logged. A job of `once` is over when it went well. With
    `held`, jobs are collected until `start`; otherwise the thread starts with the first job.
    """

    def __init__(
        self,
        name: str,
        interval_ms: int,
        clock: Clock = SYSTEM_CLOCK,
        retries: Retries = STEADY,
        *,
        held: bool = False,
    ) -> None:
        self._name = name
        self._interval_ms = interval_ms
        self._retries = retries
        self._clock = clock
        self._held = held
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, Job]] = []
        self._tickets = itertools.count(1)
        self._jobs: set[Job] = set()
        self._running = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        with self._changed:
            self._held = False
            self._start()

    def _start(self) -> None:
        if self._thread is None and not self._closed and not self._held:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
            self._clock.expect(self._thread)

    def add(
        self,
        name: str,
        run: Callable[[], object],
        pool: WorkerPool | None = None,
        *,
        delay_ms: float = 0,
        interval_ms: int | None = None,
        once: bool = False,
    ) -> Job:
        """Run a job after `delay_ms`, as soon as its pool has a thread, and from then on at its intervals.

        `interval_ms` is the job's own in place of the schedule's. Without a pool it runs on the schedule's thread, on
        which all others wait for it.
        """
        job = Job(name, run, pool, once=once, interval_ms=interval_ms or self._interval_ms)
        with self._changed:
            if not self._closed:
                self._jobs.add(job)
                self._due(job, delay_ms)
                self._start()
        return job

    def cancel(self, job: Job) -> None:
        """Do not run a job again. A run that has begun continues."""
        with self._changed:
            job.cancelled = True
            self._jobs.discard(job)

    def poke(self, jobs: list[Job] | None = None) -> None:
        """Run jobs (default: all) now; one that runs at the moment runs once more after that."""
        with self._changed:
            for job in self._jobs if jobs is None else jobs:
                if job.running:
                    job.again = True
                elif not job.cancelled:
                    self._due(job, 0.0)

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no job runs; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running == 0, timeout_s)

    def close(self) -> None:
        """Start nothing more. Waits for what runs on the schedule's own thread, not for pools."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _due(self, job: Job, after_ms: float) -> None:
        job.ticket = next(self._tickets)
        heapq.heappush(self._heap, (self._clock.monotonic() + after_ms / 1000, job.ticket, job))
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                job = self._next()
                if job is None:
                    return
                job.running = True
                self._running += 1
            if job.pool is None:
                self._run_job(job)
                continue
            try:
                job.pool.submit(self._run_job, job)
            except RuntimeError:  # the pool is shut down: so are we
                self._finished(job, went_well=True)
                return

    def _next(self) -> Job | None:
        """Wait for the next job that is due; None at the end."""
        while not self._closed:
            while self._heap and (self._heap[0][2].cancelled or self._heap[0][1] != self._heap[0][2].ticket):
                heapq.heappop(self._heap)
            due_s = self._heap[0][0] if self._heap else None
            if due_s is not None and due_s <= self._clock.monotonic():
                return heapq.heappop(self._heap)[2]
            self._clock.wait_until(self._changed, due_s, busy=self._running > 0)
        return None

    def _run_job(self, job: Job) -> None:
        went_well = False
        try:
            if not self._closed and not job.cancelled:
                went_well = job.run() is not False
        except Exception:
            logger.exception("%s failed; it is tried again", job.name)
        finally:
            self._finished(job, went_well=went_well)

    def _finished(self, job: Job, *, went_well: bool) -> None:
        with self._changed:
            job.running = False
            self._running -= 1
            job.runs += 1
            job.failures = 0 if went_well else job.failures + 1
            if went_well and job.once:
                job.cancelled = True
                self._jobs.discard(job)
            if not (job.cancelled or self._closed):
                chance = crc32c(f"{job.name} {job.runs}".encode()) / 2**32
                self._due(job, 0.0 if job.again else self._retries.delay_ms(job.interval_ms, job.failures, chance))
            job.again = False
            self._changed.notify_all()
