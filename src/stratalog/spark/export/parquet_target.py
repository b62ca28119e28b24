"""Write exports to a Parquet table and read it: workers handle its files, the driver its log."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from stratalog.errors import UsageError
from stratalog.jobs import Progress
from stratalog.spark.executor import parallelism
from stratalog.spark.export.commits import Commit, DataFile
from stratalog.spark.export.counts import Counts
from stratalog.spark.export.files import LocalFiles, ObjectFiles, open_table_files
from stratalog.spark.export.parquet_table import ParquetTable
from stratalog.spark.export.parquet_write import ParquetWriter, WrittenFiles
from stratalog.spark.export.targets import CommitResult, ExportTarget
from stratalog.spark.reading import arrow_schema
from stratalog.spark.result_stream import stream_column


class ParquetTarget(ExportTarget):
    """The target of a Parquet table. `parquet_table` explains how it is exactly once."""

    name = "parquet"

    def __init__(self, spark: SparkSession, to: str, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._files = open_table_files(to, options)
        self._table = ParquetTable(self._files)

    def recover(self) -> Commit | None:
        return self._table.recover()

    def add(self, rows: DataFrame, commit: Commit, progress: Progress) -> CommitResult:
        self._table.begin(commit.run_id)
        try:
            files, counts = self._write(rows, commit, progress)
        except BaseException:
            self._table.abandon(commit.run_id)
            raise
        self._table.commit(replace(commit, files=tuple(files)))
        return CommitResult(counts, len(files), sum(each.size for each in files))

    def _write(self, rows: DataFrame, commit: Commit, progress: Progress) -> tuple[list[DataFile], Counts]:
        """Return the files of the tasks that finished. The commit deletes those of tasks that Spark gave up."""
        writer = ParquetWriter(self._files, commit.run_id, tuple(commit.partition_by))
        written = rows.mapInArrow(writer, "written binary")
        files: list[DataFile] = []
        counts = Counts()
        with closing(stream_column(self._spark, written)) as tasks:
            for data in tasks:
                task: WrittenFiles = pickle.loads(data)
                files += task.files
                counts += task.counts
                progress.advance(sum(task.counts.records.values()))
        return sorted(files, key=lambda each: each.path), counts

    def read(self) -> DataFrame:
        commits = self._table.commits()
        if not commits or not commits[-1].schema:
            raise UsageError(f"{self._files.location} is not a table of an export")
        files = [file.path for commit in commits for file in commit.files]
        return _read_files(self._spark, self._files, files, commits[-1])


def _read_files(
    spark: SparkSession, files: LocalFiles | ObjectFiles, paths: Sequence[str], commit: Commit
) -> DataFrame:
    """Return the table as of `commit`, which has its schema: files of earlier runs may have fewer columns.

    Spark's own Parquet reader reads a directory, with its pruning. Workers read the files of an object store through
    the client that wrote them, so Spark needs neither connector nor credentials.
    """
    schema = StructType.fromJson(json.loads(commit.schema))
    if not paths:
        return spark.createDataFrame([], schema)
    if isinstance(files, LocalFiles):
        # Spark puts the columns from directory names after those of files.
        reader = spark.read.schema(schema).option("basePath", files.location)
        return reader.parquet(*(f"{files.location}/{path}" for path in paths)).select(*schema.fieldNames())
    chunks = min(len(paths), 8 * parallelism(spark))
    work = _Reading(files, [list(paths[number::chunks]) for number in range(chunks)], schema)
    return spark.range(0, chunks, 1, chunks).mapInArrow(work, schema)


class _Reading:
    """For `mapInArrow`: takes numbers of chunks of files and yields their rows."""

    def __init__(self, files: ObjectFiles, chunks: list[list[str]], schema: Any) -> None:
        self._files = files
        self._chunks = chunks
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for path in self._chunks[number]:
                    yield from _read_file(self._files, path, schema)


def _read_file(files: ObjectFiles, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file, by row group, with the columns of its directories and nulls for missing ones."""
    named = dict(part.split("=", 1) for part in path.split("/")[:-1])
    with files.open(path) as file, parquet.ParquetFile(file) as content:
        for batch in content.iter_batches():
            columns = []
            for field in schema:
                if field.name in named:
                    value = pa.scalar(unquote(named[field.name])).cast(field.type)
                    columns.append(pa.repeat(value, batch.num_rows))
                elif field.name in batch.schema.names:
                    columns.append(batch.column(field.name).cast(field.type))
                else:
                    columns.append(pa.nulls(batch.num_rows, field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
