"""Tasks over Spark's executors: values in, values out, in classic sessions and over Spark Connect alike.

No RDDs, no accumulators, no files: tasks are pickled into a function that `DataFrame.mapInArrow` runs, and results come
back as rows of bytes. A table of group numbers, one a partition, says which group of tasks a partition works on; groups
are even in cost, several for each core, the most expensive first, so that Spark's own scheduling levels what is left.
"""

from __future__ import annotations

import pickle
import traceback
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from stratalog.errors import StratalogError
from stratalog.jobs import SILENT, Progress, TaskError
from stratalog.spark.jvm import is_connect
from stratalog.util import random_uuid

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
R = TypeVar("R")

#: Groups for each core: enough to level out, few enough that starting them is no matter.
_GROUPS_PER_CORE: Final = 8

#: Ends each partition: the JVM has a buffer (8 KiB) before the socket to Python, and small results would wait in it.
_PADDING: Final = bytes(16 * 1024)


class SparkExecutor:
    """Runs the tasks of a job (`stratalog.jobs.executor.Executor`) on the executors of a Spark session.

        stratalog.jobs.audit("s3://bucket/tiered", executor=SparkExecutor(spark))

    Workers must be able to import stratalog, and see the directories that a job names.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

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
        groups = plan_groups(costs, _GROUPS_PER_CORE * parallelism(spark))
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
                    yield outcome.result  # type: ignore[misc]  # there is one when there is no error
        finally:
            progress.end()


def plan_groups(costs: Sequence[int], groups_max: int) -> list[list[int]]:
    """Return the numbers of tasks in groups of about even cost, the most expensive first. Pure.

    A task as expensive as a whole group has one to itself. A task without a cost still counts.
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


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once; of a cluster that grows on demand, how many now."""
    if not is_connect(spark):
        return max(spark.sparkContext.defaultParallelism, 1)
    from pyspark.sql import functions as F  # keeps `import stratalog.spark` cheap

    ids = spark.range(1 << 12).select(F.spark_partition_id().alias("partition")).distinct().count()
    return max(int(ids), 1)


# --- on the workers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[R]):
    """The outcome of the task with this number."""

    number: int
    result: R | None = None
    error: str | None = None
    traceback: str = ""


class _GroupWork:
    """Works on the groups whose numbers it is given, and gives their outcomes, pickled."""

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


# --- results as they come ---------------------------------------------------------------------------------------------


def stream_column(spark: SparkSession, frame: DataFrame) -> Generator[bytes, None, None]:
    """Yield the first column of a table while it is being made; closing it early interrupts the job."""
    tag = f"stratalog-{random_uuid().hex}"
    spark.addTag(tag)
    finished = False
    try:
        batches = _connect_rows(frame) if is_connect(spark) else _classic_rows(frame)
        yield from batches
        finished = True
    finally:
        if not finished:
            with suppress(Exception):  # the session may be gone; the reason why we leave is what counts
                spark.interruptTag(tag)
        with suppress(Exception):
            spark.removeTag(tag)


def _connect_rows(frame: DataFrame) -> Iterator[bytes]:
    """Yield the rows of one job: Connect's iterator, whose partitions arrive in their order."""
    for row in frame.toLocalIterator():
        yield bytes(row[0])


def _classic_rows(frame: DataFrame) -> Iterator[bytes]:
    """Yield the rows of each partition as soon as it is done, in that order.

    A classic session's `toLocalIterator` runs one partition after the other, and `collect` and `toArrow` return at the
    end. But the JVM sends each partition when it is done, and the order of all of them last. A pyspark that does not do
    so returns all rows at the end.
    """
    from pyspark.errors.exceptions.captured import unwrap_spark_exception  # private, and not in every pyspark
    from pyspark.util import _load_from_socket

    collect = getattr(getattr(frame, "_jdf", None), "collectAsArrowToPython", None)
    is_context = hasattr(_load_from_socket, "__wrapped__")  # not so before Spark 4.2
    if collect is None or not is_context:
        yield from frame.toArrow().column(0).to_pylist()
        return

    port, secret, server = collect()
    try:
        with _load_from_socket((port, secret), _arrival_serializer()) as batches:
            for batch in batches:
                yield from batch.column(0).to_pylist()
    except Exception:
        with unwrap_spark_exception():
            server.getResult()  # tells what went wrong in the JVM
        raise
    with unwrap_spark_exception():
        server.getResult()


def _arrival_serializer() -> Any:
    """Arrow batches as they arrive; what follows them is their order, or an error."""
    from pyspark import serializers  # keeps `import stratalog.spark` cheap
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    untyped: Any = serializers

    class ArrivalSerializer(ArrowStreamSerializer):
        def load_stream(self, stream: Any) -> Iterator[pa.RecordBatch]:
            yield from super().load_stream(stream)
            count = untyped.read_int(stream)
            if count == -1:
                raise PySparkRuntimeError(untyped.UTF8Deserializer().loads(stream))
            for _ in range(count):
                untyped.read_int(stream)

    return ArrivalSerializer()
