"""Run tasks on Spark's executors, in classic sessions and over Spark Connect.

No RDDs, accumulators or files are used. Tasks are pickled into a function that `DataFrame.mapInArrow` runs, and results
come back as rows of bytes. Each partition of a table has the number of one group of tasks. Groups cost about the same,
there are several for each core, and the most expensive come first, so that Spark's scheduling evens out the rest.
"""

from __future__ import annotations

import pickle
import traceback
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from stratalog.errors import StratalogError
from stratalog.jobs import SILENT, Progress, TaskError, even_groups
from stratalog.spark.jvm import is_connect
from stratalog.spark.result_stream import stream_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.spark.rows import SparkRows

T = TypeVar("T")
R = TypeVar("R")

#: Groups for each core: enough to balance load, few enough to start quickly.
_GROUPS_PER_CORE: Final = 8

#: Ends each partition: the JVM buffers 8 KiB before the socket to Python, where small results would wait.
_PADDING: Final = bytes(16 * 1024)


class SparkExecutor:
    """Runs the tasks of a job (`stratalog.jobs.executor.Executor`) on the executors of a Spark session.

        stratalog.jobs.audit("s3://bucket/tiered", executor=SparkExecutor(spark))

    Workers must be able to import stratalog, and see the directories that a job names.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def parallelism(self) -> int:
        """See `Exchanger.parallelism`."""
        return parallelism(self.spark)

    @contextmanager
    def rows(self, parts: int) -> Iterator[SparkRows]:
        """See `Exchanger.rows`. Spark keeps persisted rows until the context ends."""
        from stratalog.spark.rows import SparkRows  # keeps `import stratalog.spark` cheap

        kept: list[DataFrame] = []
        try:
            yield SparkRows(self.spark, self.spark.range(0, parts, 1, max(parts, 1)), kept)
        finally:
            for frame in kept:
                frame.unpersist()

    def map(
        self,
        work: Callable[[T], R],
        tasks: Iterable[T],
        *,
        title: str,
        progress: Progress = SILENT,
        cost: Callable[[T], int] = lambda _: 1,
        name: Callable[[T], str] = str,
    ) -> Generator[R, None, None]:
        """Run the tasks; see `Executor.map`. All tasks are read first. Closing the generator stops the Spark job.

        Tasks and results are pickled. Results go through the driver, so they should be small. Raises TaskError for the
        first task that fails. Only Spark itself retries, for lost executors.
        """
        tasks = list(tasks)
        if not tasks:
            return
        spark = self.spark
        costs = [max(cost(task), 0) for task in tasks]
        groups = even_groups(costs, _GROUPS_PER_CORE * parallelism(spark))
        payload = [zlib.compress(pickle.dumps([(i, tasks[i]) for i in group]), 1) for group in groups]
        frame = spark.range(0, len(groups), 1, len(groups)).mapInArrow(_GroupWork(payload, work), "outcome binary")
        progress.begin(title, sum(costs))
        try:
            with closing(stream_column(spark, frame)) as outcomes:
                for data in outcomes:
                    if data == _PADDING:
                        continue
                    outcome: _Outcome[R] = pickle.loads(data)
                    task = tasks[outcome.number]
                    if outcome.error is not None:
                        raise TaskError(f"{title}: {name(task)}: {outcome.error}", outcome.traceback)
                    progress.advance(costs[outcome.number])
                    yield outcome.result  # type: ignore[misc]  # set if there is no error
        finally:
            progress.end()


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks can run at once, with dynamic allocation at this moment."""
    if not is_connect(spark):
        return max(spark.sparkContext.defaultParallelism, 1)
    from pyspark.sql import functions as F  # keeps `import stratalog.spark` cheap

    ids = spark.range(1 << 12).select(F.spark_partition_id().alias("partition")).distinct().count()
    return max(int(ids), 1)


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[R]):
    """The outcome of the task with this number."""

    number: int
    result: R | None = None
    error: str | None = None
    traceback: str = ""


class _GroupWork:
    """Runs the groups with the given numbers, and returns their pickled outcomes."""

    def __init__(self, payload: list[bytes], work: Callable[[Any], Any]) -> None:
        self._payload = payload
        self._work = work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # keeps `import stratalog.spark` cheap

        for batch in batches:
            for group in batch.column(0).to_pylist():
                for number, task in pickle.loads(zlib.decompress(self._payload[group])):
                    outcome = pickle.dumps(self._outcome(number, task))
                    yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], ["outcome"])
        yield pa.RecordBatch.from_arrays([pa.array([_PADDING], pa.binary())], ["outcome"])

    def _outcome(self, number: int, task: Any) -> _Outcome[Any]:
        try:
            result = self._work(task)
            pickle.dumps(result)
        except StratalogError as error:
            return _Outcome(number, error=str(error) or type(error).__name__, traceback=traceback.format_exc())
        except Exception as error:  # noqa: BLE001
            return _Outcome(number, error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
        return _Outcome(number, result)
