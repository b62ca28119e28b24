"""How the steps run on Spark: three stages of Python functions over Arrow, with two shuffles of packed bytes between.

    keys     a row for each bucket of each piece of a segment, and one with the summary of the segment
       | by bucket; within a bucket from the newest segment to the oldest
    newest   a row for each segment of each bucket: the superseded offsets; summaries are handed on     (kept by Spark)
       | by group; within a group by segment
    rewrite  a row for each group

No RDDs: it runs in classic sessions and over Spark Connect. Memory of a task: the buffers of one segment reader and at most
one Arrow batch, and besides the keys of one bucket, or the superseded offsets of one segment. Spark spills the rest.
"""

from __future__ import annotations

import pickle
import traceback
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import StratalogError
from stratalog.spark.pipelines.compaction.plan import PartitionPlan, SurveyedPartition
from stratalog.spark.pipelines.compaction.values import (
    KeysTask,
    RewriteTask,
    Rewritten,
    SegmentSummary,
)
from stratalog.spark.pipelines.progress import SILENT, Progress
from stratalog.spark.pipelines.runner import TaskError, plan_groups

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_KEYS_SCHEMA: Final = "bucket long, segment int, sequence int, part int, base long, dirty long, data binary"
_NEWEST_SCHEMA: Final = "part int, segment int, superseded long, data binary, summary binary"
_DEAD_SCHEMA: Final = "task int, segment int, data binary"

#: More partitions of one shuffle only cost.
_PARTITIONS_MAX: Final = 10_000
#: Rows are handed to Spark in pieces of about this size.
_PIECE_BYTES: Final = 4 * 1024 * 1024
_TASKS_A_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class Survey:
    """What steps 1 and 2 found, partition by partition. `frame` is kept by Spark until the `survey` ends."""

    partitions: Sequence[SurveyedPartition]
    frame: DataFrame


@contextmanager
def survey(
    spark: SparkSession,
    plans: Sequence[PartitionPlan],
    tasks: Sequence[KeysTask],
    buckets: int,
    *,
    cores: int,
    progress: Progress = SILENT,
) -> Iterator[Survey]:
    """Do steps 1 and 2. TaskError, naming the segment, for what a worker cannot read."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    groups = plan_groups([task.source.size for task in tasks], _TASKS_A_CORE * cores)
    payload = [
        zlib.compress(pickle.dumps([tasks[number] for number in sorted(group)]), 1) for group in groups
    ]
    dirty = [plan.first_dirty_offset for plan in plans]
    keys = spark.range(0, len(groups), 1, max(len(groups), 1)).mapInArrow(
        _KeysWork(payload, dirty), _KEYS_SCHEMA
    )
    partitions = min(buckets, _PARTITIONS_MAX)
    newest = (
        keys.repartitionById(partitions, (F.col("bucket") % partitions).cast("int"))
        .sortWithinPartitions("bucket", F.desc("segment"), F.desc("sequence"))
        .mapInArrow(_NewestWork(), _NEWEST_SCHEMA)
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    progress.begin("keys", 0)
    try:
        summaries = _summaries(newest, len(plans))
        counted = newest.where("superseded > 0").groupBy("part", "segment").agg(F.sum("superseded"))
        superseded: dict[tuple[int, int], int] = {(row[0], row[1]): row[2] for row in counted.collect()}
        progress.end()
        found = [
            SurveyedPartition(
                summaries[part],
                [superseded.get((part, segment), 0) for segment in range(len(plan.sources))],
            )
            for part, plan in enumerate(plans)
        ]
        yield Survey(found, newest)
    finally:
        newest.unpersist()


def _summaries(newest: DataFrame, parts: int) -> list[list[SegmentSummary]]:
    found: list[list[SegmentSummary]] = [[] for _ in range(parts)]
    for row in newest.where("summary is not null").select("summary").collect():
        summary = pickle.loads(row[0])
        if isinstance(summary, _Failure):
            raise TaskError(f"{summary.where}: {summary.error}", summary.traceback)
        found[summary.part].append(summary)
    for summaries in found:
        summaries.sort(key=lambda summary: summary.segment)
    return found


def rewrite(
    spark: SparkSession, surveyed: Survey, tasks: Sequence[RewriteTask], *, progress: Progress = SILENT
) -> Iterator[Rewritten]:
    """Do step 3; new segments as they come. TaskError, naming the group, for what a worker cannot read or write.

    A task that ran twice leaves a directory behind that nobody is told of; whoever gave `RewriteTask.directory` clears it.
    """
    from pyspark.sql import functions as F

    from stratalog.spark.pipelines.runner import stream_column

    if not tasks:
        return
    owner = {
        (task.part, task.first_segment + number): (place, number)
        for place, task in enumerate(tasks)
        for number in range(len(task.sources))
    }
    payload = [zlib.compress(pickle.dumps(task), 1) for task in tasks]
    partitions = min(len(tasks), _PARTITIONS_MAX)
    lists = (
        surveyed.frame.where("superseded > 0")
        .select("part", "segment", "data")
        .mapInArrow(_OwnerWork(owner), _DEAD_SCHEMA)
    )
    begins = spark.range(0, len(tasks), 1, 1).select(
        F.col("id").cast("int").alias("task"),
        F.lit(-1).alias("segment"),
        F.lit(None).cast("binary").alias("data"),
    )
    frame = (
        lists.unionAll(begins)
        .repartitionById(partitions, F.col("task") % partitions)
        .sortWithinPartitions("task", "segment")
        .mapInArrow(_RewriteWork(payload), "outcome binary")
    )
    progress.begin("rewriting", sum(source.size for task in tasks for source in task.sources))
    try:
        with closing(stream_column(spark, frame)) as outcomes:
            for data in outcomes:
                outcome = pickle.loads(data)
                if isinstance(outcome, _Failure):
                    raise TaskError(f"{outcome.where}: {outcome.error}", outcome.traceback)
                progress.advance(outcome.stats.bytes_read)
                yield outcome
    finally:
        progress.end()


# --- on the workers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a task failed; it travels like a result, so that Spark does not try it again and again."""

    where: str
    error: str
    traceback: str

    @classmethod
    def of(cls, where: str, error: Exception) -> _Failure:
        said = str(error) if isinstance(error, StratalogError) else f"{type(error).__name__}: {error}"
        return cls(where, said or type(error).__name__, traceback.format_exc())


class _Rows:
    """Rows on their way to Spark, in pieces of some size."""

    def __init__(self, names: Sequence[str], types: Sequence[pa.DataType]) -> None:
        self._names, self._types = names, types
        self._rows: list[tuple[Any, ...]] = []
        self._size = 0

    def add(self, *row: Any, size: int) -> Iterator[pa.RecordBatch]:
        self._rows.append(row)
        self._size += size
        if self._size >= _PIECE_BYTES or len(self._rows) >= 10_000:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, self._types, strict=True)]
            self._rows, self._size = [], 0
            yield pa.RecordBatch.from_arrays(arrays, list(self._names))


def _rows_of(schema: str) -> _Rows:
    """For one of the schemas above."""
    import pyarrow as pa

    kinds = {"int": pa.int32(), "long": pa.int64(), "binary": pa.binary()}
    names, types = zip(*(field.split() for field in schema.split(", ")), strict=True)
    return _Rows(names, [kinds[kind] for kind in types])


class _KeysWork:
    """Step 1 of the groups of tasks whose numbers it is given."""

    def __init__(self, payload: list[bytes], dirty: list[int]) -> None:
        self._payload = payload
        self._dirty = dirty

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from stratalog.spark.pipelines.compaction.keys import KeyCollector

        collector, rows = KeyCollector(), _rows_of(_KEYS_SCHEMA)
        for batch in batches:
            for group in batch.column(0).to_pylist():
                for task in pickle.loads(zlib.decompress(self._payload[group])):
                    yield from self._segment(collector, rows, task)
        yield from rows.flush()

    def _segment(self, collector: Any, rows: _Rows, task: KeysTask) -> Iterator[pa.RecordBatch]:
        facts = task.part, task.source.base_offset, self._dirty[task.part]
        summary: SegmentSummary | _Failure | None = None
        try:
            for packed in collector.collect(task):
                if isinstance(packed, SegmentSummary):
                    summary = packed
                    continue
                data = packed.data
                yield from rows.add(
                    packed.bucket, task.segment, packed.sequence, *facts, data, size=len(data)
                )
        except Exception as error:
            summary = _Failure.of(task.source.name, error)
        data = pickle.dumps(summary)
        yield from rows.add(task.first_bucket, task.segment, -1, *facts, data, size=len(data))


class _NewestWork:
    """Step 2 of sorted rows of buckets; rows with the sequence -1 are handed on."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from stratalog.spark.pipelines.compaction.newest import NewestKeys

        seen, rows, bucket = NewestKeys(), _rows_of(_NEWEST_SCHEMA), -1
        for (of, segment, sequence, part, base, dirty), data in _binary_rows(batches):
            if sequence < 0:
                yield from rows.add(part, segment, 0, None, bytes(data), size=len(data))
                continue
            if of != bucket:
                seen.clear()
                bucket = of
            listed = seen.superseded(data, base, dirty)
            if len(listed):
                yield from rows.add(part, segment, len(listed), listed.tobytes(), None, size=4 * len(listed))
        yield from rows.flush()


class _OwnerWork:
    """Gives lists of superseded offsets the number of their task and of the segment within it; others go."""

    def __init__(self, owner: Mapping[tuple[int, int], tuple[int, int]]) -> None:
        self._owner = dict(owner)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _rows_of(_DEAD_SCHEMA)
        for (part, segment), data in _binary_rows(batches):
            owner = self._owner.get((part, segment))
            if owner is not None:
                yield from rows.add(*owner, bytes(data), size=len(data))
        yield from rows.flush()


class _RewriteWork:
    """Step 3 of sorted rows of groups, each of which begins with a row without data."""

    def __init__(self, payload: list[bytes]) -> None:
        self._payload = payload

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for number, rows in groupby(_binary_rows(batches), key=lambda row: row[0][0]):
            task: RewriteTask = pickle.loads(zlib.decompress(self._payload[number]))
            try:
                outcome: Any = _rewritten(task, ((row[0][1], row[1]) for row in rows))
            except Exception as error:
                outcome = _Failure.of(task.sources[0].name, error)
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)], pa.binary())], ["outcome"])


def _rewritten(task: RewriteTask, rows: Iterator[tuple[int, memoryview]]) -> Rewritten:
    """Rewrite a group whose superseded offsets come segment by segment, so that only those of one are in memory."""
    import numpy as np

    from stratalog.spark.pipelines.compaction.rewrite import GroupRewriter

    rewriter = GroupRewriter(task)
    none = np.empty(0, np.uint32)
    done = 0
    try:
        for segment, lists in groupby(rows, key=lambda row: row[0]):
            superseded = _sorted(data for _, data in lists)
            if segment < 0:
                continue
            for _ in range(done, segment):
                rewriter.add(none)
            rewriter.add(superseded)
            done = segment + 1
        for _ in range(done, len(task.sources)):
            rewriter.add(none)
        return rewriter.finish()
    except BaseException:
        rewriter.discard()
        raise


def _sorted(lists: Iterator[memoryview]) -> npt.NDArray[np.uint32]:
    import numpy as np

    pieces = [np.frombuffer(data, np.uint32).copy() for data in lists if len(data)]
    if not pieces:
        return np.empty(0, np.uint32)
    whole = np.concatenate(pieces)
    whole.sort()
    return whole


def _binary_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[tuple[Any, ...], memoryview]]:
    """The rows of tables whose last column is binary, which is not copied."""
    for batch in batches:
        *numbers, data = batch.columns
        facts = zip(*(column.to_pylist() for column in numbers), strict=True)
        for row, fact in enumerate(facts):
            buffer = data[row].as_buffer()
            yield fact, memoryview(b"" if buffer is None else buffer)
