"""Parquet tables in a bucket of a real S3 server: whole runs or nothing, one of two that overlap, no file too many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stratalog.errors import UsageError
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark.export import export, read_table
from stratalog.spark.export.commits import Commit, OffsetRange, next_commit
from stratalog.spark.export.files import ObjectFiles
from stratalog.spark.export.parquet_table import COMMITS, RUNS, OverlappingRunsError, ParquetTable
from stratalog.spark.export.parquet_target import ParquetTarget
from stratalog.spark.export.parquet_write import ParquetWriter
from tests.spark.export.tables import data_paths, offsets, rows, run
from tests.spark.partitions import Partition, steady
from tests.support.s3_server import S3Server


class CrashedError(BaseException):
    """The driver died here."""


def crash(*_: object) -> None:
    raise CrashedError


@pytest.fixture
def bucket(s3: S3Server) -> str:
    ObjectStore.from_url(s3.url("lake"), s3.options).put("is-there", b"")
    return "lake"


@pytest.fixture
def files(s3: S3Server, bucket: str, request: pytest.FixtureRequest) -> ObjectFiles:
    return ObjectFiles(s3.url(f"{bucket}/{request.node.name}"), s3.options)


def committed(files: ObjectFiles) -> list[str]:
    return sorted(file.path for file in ParquetTable(files).data_files())


def test_what_a_run_that_died_wrote_is_deleted_by_the_next(files: ObjectFiles) -> None:
    run(files, "first", 9)
    with pytest.raises(CrashedError):
        run(files, "dead", 20, before_commit=crash)
    assert len(data_paths(files)) > len(committed(files))
    assert offsets(files, committed(files)) == list(range(9))
    run(files, "next", 30)
    assert offsets(files, committed(files)) == list(range(30))
    assert data_paths(files) == committed(files)
    assert files.list(RUNS) == []


def test_of_runs_that_commit_at_the_same_moment_one_does(files: ObjectFiles) -> None:
    """And files and announcements of the others are gone."""
    runs = {f"run{number}": ParquetTable(ObjectFiles(files.location, files._options)) for number in range(4)}
    for table in runs.values():
        assert table.recover() is None
    commits = []
    for number, (run_id, table) in enumerate(runs.items(), 5):
        table.begin(run_id)
        written = ParquetWriter(files, run_id, ()).write(iter([rows(0, number)]))
        commit = next_commit(None, run_id, [OffsetRange("t", 0, 0, number)], "s", (), None)
        commits.append((table, replace(commit, files=written.files)))

    def refused(run: tuple[ParquetTable, Commit]) -> bool:
        table, commit = run
        try:
            table.commit(commit)
        except OverlappingRunsError:
            return True
        return False

    with ThreadPoolExecutor(len(runs)) as together:
        assert sorted(together.map(refused, commits)) == [False, True, True, True]
    found = offsets(files, committed(files))
    assert found == list(range(len(found)))
    assert data_paths(files) == committed(files)
    assert files.list(RUNS) == []


def test_a_store_that_overwrites_is_refused_before_anything_is_written(files: ObjectFiles) -> None:
    class Overwriting(ObjectFiles):
        def create(self, path: str, data: bytes) -> bool:
            self.store.put(path, data)
            return True

    with pytest.raises(UsageError, match="two exports could both commit"):
        run(Overwriting(files.location, files._options), "run", 9)
    assert files.list() == []


def test_a_run_that_was_taken_for_dead_as_it_began_is_refused(files: ObjectFiles) -> None:
    class Withdrawn(ObjectFiles):
        def create(self, path: str, data: bytes) -> bool:
            if data == b"again":
                run(files, "other", 5)
            return super().create(path, data)

    with pytest.raises(OverlappingRunsError):
        run(Withdrawn(files.location, files._options), "run", 9)
    assert offsets(files, committed(files)) == list(range(5))
    assert data_paths(files) == committed(files)
    assert files.list(RUNS) == []


def test_a_commit_whose_answer_was_lost_is_known_again(files: ObjectFiles) -> None:
    assert files.create(f"{COMMITS}/1", b"mine")
    assert files.create(f"{COMMITS}/1", b"mine")
    assert not files.create(f"{COMMITS}/1", b"another's")
    assert files.read(f"{COMMITS}/1") == b"mine"


def test_exports_of_spark_into_a_bucket(
    spark: SparkSession, s3: S3Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(tmp_path / "data")
    keywords: dict[str, Any] = {
        "source": {"path": str(tmp_path / "data"), "subscribe": "orders"},
        "to": s3.url(f"{bucket}/orders"),
        "target_options": s3.options,
    }
    partition.segment(steady(4, step_ms=6 * 3_600_000))
    assert export(spark, **keywords).records == 20

    # The driver dies when its files are written.
    partition.segment(steady(2))
    with monkeypatch.context() as patched:
        patched.setattr(ParquetTable, "commit", crash)
        with pytest.raises(CrashedError):
            export(spark, **keywords)
    files = ObjectFiles(keywords["to"], s3.options)
    assert len(data_paths(files)) > len(committed(files))

    # The next run cleans up; a second one overtakes it while it writes.
    write = ParquetTarget._write

    def overtaken(self: ParquetTarget, *arguments: Any) -> Any:
        monkeypatch.setattr(ParquetTarget, "_write", write)
        assert export(spark, **keywords).records == 10
        return write(self, *arguments)

    monkeypatch.setattr(ParquetTarget, "_write", overtaken)
    with pytest.raises(OverlappingRunsError, match="another run exported to the table at the same time"):
        export(spark, **keywords)
    table = read_table(spark, keywords["to"], target_options=s3.options)
    assert [row.offset for row in table.select("offset").orderBy("offset").collect()] == list(range(30))
    assert data_paths(files) == committed(files)
    assert files.list(RUNS) == []
