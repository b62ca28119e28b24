"""Run a job: an `Executor` runs one function for each task, on threads of this process or elsewhere.

    for facts in Threads(4).map(read_segment, tasks, title="reading segments"): ...

A job is a plan (tasks), a work function and a result, and knows nothing of where it runs. Tasks and results are plain
values that can be pickled, so that `stratalog.spark.executor.SparkExecutor` runs the same job on a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final, Generic, Protocol, TypeVar

from stratalog.errors import StratalogError
from stratalog.jobs.progress import SILENT, Progress
from stratalog.jobs.rows import StepRows, ThreadRows

T = TypeVar("T")
R = TypeVar("R")


class TaskError(StratalogError):
    """A task failed in another process or on another machine. `remote_traceback` is the worker's traceback."""

    def __init__(self, message: str, remote_traceback: str = "") -> None:
        super().__init__(message)
        self.remote_traceback = remote_traceback


class Executor(Protocol):
    """Runs independent tasks, several at a time."""

    def map(
        self,
        work: Callable[[T], R],
        tasks: Iterable[T],
        *,
        title: str,
        progress: Progress = SILENT,
        cost: Callable[[T], int] = lambda _: 1,
    ) -> Generator[R, None, None]:
        """Yield `work(task)` for every task, as results arrive, in no order.

        `work` may be called twice for one task, so it must be idempotent. `progress` advances by the `cost` of each
        finished task, such as its bytes. Closing the generator cancels the tasks that have not begun, and waits for the
        others. A caller that may stop early must close it: the garbage collector would wait for threads at any point,
        even while they start.

        Raises what `work` raised for the first task that failed, or a TaskError that names the task.
        """


class Exchanger(Executor, Protocol):
    """An executor for jobs whose steps send rows to each other."""

    @property
    def parallelism(self) -> int:
        """The number of tasks that run concurrently."""

    def rows(self, parts: int) -> AbstractContextManager[StepRows]:
        """Return a table of the numbers from 0 in a column `id`, one in each part. It is valid within the context."""


@dataclass(frozen=True, slots=True)
class Threads:
    """An executor on `count` threads of this process, by default one for each processor.

    Threads take tasks as they become free, so an iterator of tasks is never held as a whole.
    """

    count: int = os.cpu_count() or 1

    def map(
        self,
        work: Callable[[T], R],
        tasks: Iterable[T],
        *,
        title: str,
        progress: Progress = SILENT,
        cost: Callable[[T], int] = lambda _: 1,
    ) -> Generator[R, None, None]:
        """See `Executor.map`. Exceptions of `work` are raised unchanged."""
        total = sum(map(cost, tasks)) if isinstance(tasks, Sequence) else 0
        source = iter(tasks)
        running: dict[Future[R], int] = {}
        done: SimpleQueue[Future[R]] = SimpleQueue()
        pool = ThreadPoolExecutor(self.count, thread_name_prefix="stratalog-job")
        progress.begin(title, total)
        try:
            while True:
                for task in islice(source, 2 * self.count - len(running)):
                    future = pool.submit(work, task)
                    running[future] = cost(task)
                    future.add_done_callback(done.put)
                if not running:
                    return
                future = done.get()
                amount = running.pop(future)
                result = future.result()
                progress.advance(amount)
                yield result
        finally:
            pool.shutdown(cancel_futures=True)
            progress.end()

    @property
    def parallelism(self) -> int:
        """See `Exchanger.parallelism`."""
        return self.count

    @contextmanager
    def rows(self, parts: int) -> Iterator[StepRows]:
        """See `Exchanger.rows`. Rows are kept in a temporary directory."""
        with TemporaryDirectory(prefix="stratalog-rows-") as directory:
            yield ThreadRows.numbers(self, Path(directory), parts)


#: The default executor of a job.
THREADS: Final = Threads()


def even_groups(costs: Sequence[int], groups_max: int) -> list[list[int]]:
    """Return the numbers of tasks in groups of about even cost, the most expensive first. Pure.

    A task as expensive as a whole group gets its own group. A task without a cost still counts.
    """
    share = -(-(sum(costs) + len(costs)) // max(groups_max, 1))
    groups: list[list[int]] = []
    filled = share
    for number in sorted(range(len(costs)), key=lambda number: -costs[number]):
        if filled + costs[number] + 1 > share:
            groups.append([])
            filled = 0
        groups[-1].append(number)
        filled += costs[number] + 1
    return groups


@dataclass(frozen=True, slots=True)
class _Numbered(Generic[T]):
    number: int
    task: T

    def __str__(self) -> str:
        return str(self.task)


@dataclass(frozen=True, slots=True)
class _NumberedWork(Generic[T, R]):
    work: Callable[[T], R]

    def __call__(self, numbered: _Numbered[T]) -> tuple[int, R]:
        return numbered.number, self.work(numbered.task)


def map_in_order(
    executor: Executor,
    work: Callable[[T], R],
    tasks: Sequence[T],
    *,
    title: str,
    progress: Progress = SILENT,
    cost: Callable[[T], int] = lambda _: 1,
) -> list[R]:
    """Return `work(task)` for every task, in the order of the tasks. Otherwise like `Executor.map`."""
    numbered = [_Numbered(number, task) for number, task in enumerate(tasks)]
    done = executor.map(
        _NumberedWork(work), numbered, title=title, progress=progress, cost=lambda each: cost(each.task)
    )
    results = dict(done)
    return [results[number] for number in range(len(tasks))]
