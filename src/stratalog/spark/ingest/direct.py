"""Load Parquet files directly: tasks read them in place, and no row goes through the JVM.

Each task takes adjacent row groups, decodes them with Arrow, and writes them as a task of the bulk sink does. The
driver publishes the staged segments of all tasks in one step, in the order of files and rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stratalog.errors import StratalogError
from stratalog.jobs import Progress, TaskError
from stratalog.spark.executor import SparkExecutor, parallelism
from stratalog.spark.ingest.parquet_plan import (
    Indirect,
    ParquetInput,
    ReadTask,
    check_directories,
    local_path,
    read_footer,
    read_tasks,
    wanted_columns,
)
from stratalog.spark.ingest.parquet_rows import read_rows, sink_schema
from stratalog.spark.ingest.through_spark import SparkInput, reason
from stratalog.spark.ingest.values import IngestError, SourceFile, shown_files
from stratalog.spark.reading import run_ahead
from stratalog.spark.sink import BulkTaskResult, SinkOptions, StagedWrite

#: Uncompressed bytes that a task reads: every task makes a segment for each partition that its rows belong to.
TASK_BYTES: Final = 128 << 20
_FOOTERS_AT_ONCE: Final = 16
#: Batches of rows that are decoded while earlier ones are encoded and written.
_BATCHES_AHEAD: Final = 4

#: Settings with which Spark would read files differently, and the value that the direct path requires.
_SETTINGS: Final = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class DirectReader:
    spark: SparkSession
    source: SparkInput
    progress: Progress

    def load(self, files: Sequence[SourceFile], sink: Mapping[str, str]) -> int:
        """Publish the rows of `files` through the bulk sink with these options, and return their number.

        Raises Indirect, before anything is written, for files that need Spark's reader. Raises IngestError.
        """
        inputs = self._inputs(files)
        names = shown_files([file.path for file in files])
        options = SinkOptions.parse(sink)
        write, batch = StagedWrite(options, sink_schema(inputs[0].columns)), options.numbered_batch
        tasks = read_tasks(inputs, parallelism(self.spark), TASK_BYTES)
        found: list[BulkTaskResult | None] = [None] * len(tasks)
        try:
            self._run(write, tasks, found)
            if None in found:
                raise IngestError(f"{found.count(None)} of {len(tasks)} tasks have reported nothing")
        except BaseException as error:
            write.discard(found, batch)
            if isinstance(error, StratalogError) or _is_sparks(error):
                raise IngestError(f"{names}: {_described(error)}; nothing of this round was published") from error
            raise
        try:
            write.publish(found, batch)
        except BaseException as error:
            write.discard(found, batch)
            if isinstance(error, StratalogError):
                raise IngestError(f"{names}: {error}") from error
            raise
        self.progress.advance(sum(file.size for file in files) - sum(task.cost for task in tasks))
        return sum(segment.records for task in found if task is not None for segment in task.segments)

    def _inputs(self, files: Sequence[SourceFile]) -> list[ParquetInput]:
        source = self.source
        if source.file_format != "parquet":
            raise Indirect(f"the files are {source.file_format}")
        if source.read_options or source.schema is not None:
            raise Indirect("there are options or a schema for its reader")
        if source.sort_by_time:
            raise Indirect("it sorts by time")
        wanted = wanted_columns(source.rows)
        for name, value in _SETTINGS.items():
            if (self.spark.conf.get(name, None) or value).lower() != value:
                raise Indirect(f"{name} is set")
        for file in files:
            check_directories(local_path(file.path), source.base_path, list(wanted.values()))
        case_sensitive = (self.spark.conf.get("spark.sql.caseSensitive", None) or "").lower() == "true"
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="footers") as pool:
            inputs = list(pool.map(lambda file: read_footer(file, wanted, case_sensitive=case_sensitive), files))
        for target, name in wanted.items():
            kinds = {column.kind for each in inputs for column in each.columns if column.target == target}
            if len(kinds) > 1:
                raise Indirect(f"column {name} is not of one type in all files")
        return inputs

    def _run(self, write: StagedWrite, tasks: Sequence[ReadTask], found: list[BulkTaskResult | None]) -> None:
        outcomes = SparkExecutor(self.spark).map(
            _Load(write),
            tasks,
            title="loading",
            progress=_Within(self.progress),
            cost=lambda task: task.cost,
            name=lambda task: f"task {task.number + 1} of {len(tasks)}",
        )
        with closing(outcomes):
            for number, segments in outcomes:
                found[number] = segments


class _Load:
    def __init__(self, write: StagedWrite) -> None:
        self._write = write

    def __call__(self, task: ReadTask) -> tuple[int, BulkTaskResult]:
        try:
            return task.number, self._write.run(run_ahead(read_rows(task), _BATCHES_AHEAD))
        except IngestError:
            raise
        except StratalogError as error:
            names = shown_files([str(part.file.path) for part in task.parts])
            raise IngestError(f"{names}: {error}") from error


class _Within(Progress):
    """The progress of a part of a longer job."""

    def __init__(self, whole: Progress) -> None:
        self._whole = whole

    def advance(self, amount: int) -> None:
        self._whole.advance(amount)


def _is_sparks(error: BaseException) -> bool:
    return isinstance(error, PySparkException)


def _described(error: BaseException) -> str:
    """Return the message of a failed task without the text that the runner adds."""
    if isinstance(error, TaskError):
        return str(error)
    return reason(error) if isinstance(error, Exception) and _is_sparks(error) else str(error)
