"""The log of a Parquet table: what is committed is there once, and nothing else, whatever stops a run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import UsageError
from stratalog.spark.export.commits import Commit, CorruptCommitError, OffsetRange, next_commit
from stratalog.spark.export.files import LocalFiles, ObjectFiles, open_table_files
from stratalog.spark.export.parquet_table import OverlappingRunsError, ParquetTable
from stratalog.spark.export.parquet_write import ParquetWriter
from tests.spark.export.tables import data_paths, offsets, rows, run


class CrashedError(Exception):
    """The process died here."""


class FailingFiles(LocalFiles):
    """Dies before the n-th change, or right after it; every change counts."""

    def __init__(self, root: Path, steps: int, after: bool) -> None:
        super().__init__(root)
        self.steps = steps
        self.after = after

    def _step(self) -> bool:
        self.steps -= 1
        if self.steps == 0 and not self.after:
            raise CrashedError
        return self.steps == 0

    def create(self, path: str, data: bytes) -> bool:
        dies = self._step()
        made = super().create(path, data)
        if dies:
            raise CrashedError
        return made

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            dies = self._step()
            super().delete([path])
            if dies:
                raise CrashedError

    def dying_write(self) -> None:
        if self._step() or self.steps < 0:
            raise CrashedError


@settings(deadline=None, max_examples=25)
@given(
    crashes=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=5),
    ends=st.lists(st.integers(1, 60), min_size=6, max_size=6),
)
def test_runs_that_die_anywhere_export_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[tuple[int, bool]], ends: list[int]
) -> None:
    """Invariant: after any crashes the table has a prefix of the records, each once; after a whole run it has all of
    them, and the directory nothing else."""
    root = tmp_path_factory.mktemp("table")
    files = LocalFiles(root)
    ends.sort()
    for number, (steps, after) in enumerate(crashes):
        with suppress(CrashedError):
            dying = FailingFiles(root, steps, after)
            run(dying, f"run{number}", ends[number], before_commit=dying.dying_write)
        committed = [file.path for file in ParquetTable(files).data_files()]
        found = offsets(files, committed)
        assert found == list(range(len(found)))
    run(files, "whole", ends[-1])
    run(files, "again", ends[-1])
    committed = [file.path for file in ParquetTable(files).data_files()]
    assert offsets(files, committed) == list(range(ends[-1]))
    assert sorted(committed) == data_paths(files)
    assert files.list("_stratalog/runs") == []


@pytest.mark.parametrize("kind", ["directory", "store"])
def test_of_two_runs_at_the_same_time_one_is_refused(tmp_path: Path, kind: str) -> None:
    files = LocalFiles(tmp_path) if kind == "directory" else ObjectFiles(tmp_path.as_uri(), {})
    slow = ParquetTable(files)
    last = slow.recover()
    slow.begin("slow")
    written = ParquetWriter(files, "slow", ()).write(iter([rows(0, 9)]))
    run(files, "quick", 5)
    commit = next_commit(last, "slow", [OffsetRange("t", 0, 0, 9)], "s", (), None)
    with pytest.raises(OverlappingRunsError, match="another run"):
        slow.commit(replace(commit, files=written.files))
    committed = [file.path for file in ParquetTable(files).data_files()]
    assert offsets(files, committed) == list(range(5))
    assert data_paths(files) == sorted(committed)


def test_files_of_tasks_that_spark_gave_up_go_with_the_commit(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    table = ParquetTable(files)
    table.recover()
    table.begin("run")
    writer = ParquetWriter(files, "run", ("date",))
    writer.write(iter([rows(0, 9)]))
    second = writer.write(iter([rows(0, 9)]))
    commit = next_commit(None, "run", [OffsetRange("t", 0, 0, 9)], "s", ("date",), None)
    table.commit(replace(commit, files=second.files))
    assert data_paths(files) == sorted(file.path for file in second.files)


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)

    def batches() -> object:
        yield rows(0, 20)
        raise CrashedError

    with pytest.raises(CrashedError):
        ParquetWriter(files, "run", ("date",)).write(batches())  # type: ignore[arg-type]
    assert files.list() == []


def test_files_are_closed_when_they_are_large_and_when_there_are_many(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    batches = [rows(start, start + 50) for start in range(0, 500, 50)]
    written = ParquetWriter(files, "run", (), file_bytes=1).write(iter(batches))
    assert [file.records for file in written.files] == [50] * 10
    hours = [
        batch.set_column(3, "date", pa.array([f"d{offset}" for offset in batch.column(2).to_pylist()]))
        for batch in batches
    ]
    written = ParquetWriter(files, "other", ("date",)).write(iter(hours))
    assert sum(file.records for file in written.files) == 500
    assert written.counts.records == {("t", 0): 500}


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    for number in range(3):
        run(files, f"run{number}", 5 + number)
    middle = tmp_path / "_stratalog/commits/00000000000000000001.json"
    text = middle.read_text()
    middle.write_text(text[:50])
    with pytest.raises(CorruptCommitError, match=r"00000000000000000001\.json is not a commit"):
        ParquetTable(files).data_files()
    middle.unlink()
    with pytest.raises(CorruptCommitError, match=r"lacks .*00000000000000000001\.json"):
        ParquetTable(files).last()
    middle.write_text(text.replace('"format":1', '"format":2'))
    with pytest.raises(CorruptCommitError, match="upgrade stratalog"):
        ParquetTable(files).data_files()


def test_a_commit_survives_its_text() -> None:
    commit = next_commit(None, "r", [OffsetRange("a.b-c", 12, 5, 9)], '{"x":"\'"}', ("date", "hour"), "json a INT")
    assert Commit.parse(commit.to_json(), "here") == commit
    following = next_commit(commit, "s", [OffsetRange("a.b-c", 12, 9, 10), OffsetRange("n", 0, 3, 4)], "", (), None)
    assert following.next_offsets == {("a.b-c", 12): 10, ("n", 0): 4}


def test_a_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        open_table_files(str(tmp_path / "file"), {})
    for bad in ("s3://[bucket", "s3://me:hush@h\u2100st/x"):
        with pytest.raises(UsageError, match="expected a directory or a URL") as raised:
            open_table_files(bad, {})
        assert "hush" not in str(raised.value)
