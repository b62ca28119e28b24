"""Exports into a Parquet table: files written by the workers, the log by the driver."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from stratalog.errors import UsageError
from stratalog.jobs import Progress
from stratalog.spark.export.commits import Commit, DataFile
from stratalog.spark.export.counts import Counts
from stratalog.spark.export.files import open_table_files
from stratalog.spark.export.parquet_read import read_files
from stratalog.spark.export.parquet_table import ParquetTable
from stratalog.spark.export.parquet_write import ParquetWriter, WrittenFiles
from stratalog.spark.export.targets import CommitResult, ExportTarget
from stratalog.spark.result_stream import stream_column


class ParquetTarget(ExportTarget):
    """See `parquet_table` for what makes it exactly once."""

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
            raise UsageError(f"{self._files.location} is no table of an export")
        files = [file.path for commit in commits for file in commit.files]
        return read_files(self._spark, self._files, files, commits[-1])
