"""A Parquet table that gets each run's rows whole or not at all.

    <table>/date=2023-07-01/part-<run>-<random>.parquet
    <table>/_stratalog/commits/00000000000000000007.json      one a run, from 0 without gap (`commits.Commit`)
    <table>/_stratalog/runs/<run>                             a run that is in progress or has crashed

A file belongs to the table if a commit names it. A run announces itself under `runs`, writes files with its name in
theirs, makes the next commit in one atomic step, and removes its announcement. A crash before the commit leaves files
that no commit names, and an announcement by which the next run finds them. Before that run deletes them, it makes a
commit without files: if the other run is still alive, its commit number is taken.

Other engines ignore commits and announcements, because names of directories that begin with `_` are hidden. Between a
crash and the next run, a reader of the directory as plain Parquet sees the files of the crashed run. `read_table` does
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stratalog.errors import StratalogError, UsageError
from stratalog.spark.export.commits import Commit, CorruptCommitError, DataFile
from stratalog.spark.export.files import TableFiles

COMMITS: Final = "_stratalog/commits"
RUNS: Final = "_stratalog/runs"


class OverlappingRunsError(StratalogError):
    """Another run exported to the same table at the same time; the files of this one were removed."""

    @classmethod
    def of(cls, table: str) -> OverlappingRunsError:
        return cls(
            f"{table}: another run exported to the table at the same time; nothing of this one was kept. Start it "
            "again when the other is done"
        )


class ParquetTable:
    """The log of one table. Not thread-safe."""

    def __init__(self, files: TableFiles) -> None:
        self.files = files

    def commits(self) -> list[Commit]:
        """Return all commits, in order. Raises CorruptCommitError."""
        return [self._read(path) for path in self._commit_paths()]

    def last(self) -> Commit | None:
        """Return the newest commit, or None if the table does not exist."""
        paths = self._commit_paths()
        return self._read(paths[-1]) if paths else None

    def data_files(self) -> list[DataFile]:
        """Return the files of the table."""
        return [file for commit in self.commits() for file in commit.files]

    def begin(self, run_id: str) -> None:
        """Announce a run before its first file. Raises UsageError if two runs could make the same commit."""
        announcement = f"{RUNS}/{run_id}"
        self.files.create(announcement, b"")
        # One success is possible: another run has just taken this one for crashed, which the commit will detect.
        if all(self.files.create(announcement, text) for text in (b"again", b"and again")):
            self.files.delete([announcement])
            raise UsageError(
                f"{self.files.location}: the store overwrites an object although it is asked not to "
                "(If-None-Match), so two exports could both commit; export to a store that keeps to it, or to a "
                "directory"
            )

    def commit(self, commit: Commit) -> None:
        """Make a run's files part of the table. Before it raises OverlappingRunsError, it deletes them.

        After any other error they may be committed or not; `recover` of the next run finds out.
        """
        if not self._append(commit):
            self.abandon(commit.run_id)
            raise OverlappingRunsError.of(self.files.location)
        touched = {each.path.rpartition("/")[0] for each in commit.files}
        self._withdraw(commit.run_id, keep=commit.files, directories=sorted(touched))

    def abandon(self, run_id: str) -> None:
        """Delete the files of a run that will not be committed, and its announcement."""
        self._withdraw(run_id, keep=())

    def recover(self) -> Commit | None:
        """Clean up after crashed runs, and return the last commit.

        Raises OverlappingRunsError if another run commits now.
        """
        self._clean_up()
        return self.last()

    def _clean_up(self) -> None:
        announced = [path.rsplit("/", 1)[-1] for path in self.files.list(RUNS)]
        announced = [run_id for run_id in announced if not run_id.startswith(".")]
        if not announced:
            return
        by_run = {commit.run_id: commit for commit in self.commits()}
        dead = [run_id for run_id in announced if run_id not in by_run]
        last = self.last()
        if dead and not self._append(_fence(last, dead)):
            raise OverlappingRunsError(
                f"{self.files.location}: another run is exporting to the table; start this one when it is done"
            )
        for run_id in announced:
            self._withdraw(run_id, keep=by_run[run_id].files if run_id in by_run else ())

    def _withdraw(self, run_id: str, keep: Sequence[DataFile], directories: Sequence[str] = ("",)) -> None:
        """Delete the files of a run except those to `keep`, then its announcement."""
        kept = {each.path for each in keep}
        for directory in directories:
            found = self.files.list(directory)
            self.files.delete([path for path in found if is_file_of(path, run_id) and path not in kept])
        self.files.delete([f"{RUNS}/{run_id}"])

    def _append(self, commit: Commit) -> bool:
        return self.files.create(f"{COMMITS}/{commit.version:020d}.json", commit.to_json().encode())

    def _commit_paths(self) -> list[str]:
        paths = [path for path in self.files.list(COMMITS) if path.endswith(".json")]
        expected = [f"{COMMITS}/{version:020d}.json" for version in range(len(paths))]
        if paths != expected:
            missing = sorted(set(expected) - set(paths))
            raise CorruptCommitError(
                f"{self.files.location}: the log of exports lacks {', '.join(missing[:3])}; restore it from a backup"
            )
        return paths

    def _read(self, path: str) -> Commit:
        return Commit.parse(self.files.read(path), f"{self.files.location}/{path}")


def file_name(run_id: str, unique: str) -> str:
    return f"part-{run_id}-{unique}.parquet"


def is_file_of(path: str, run_id: str) -> bool:
    """Return whether a run made this data file, finished or not."""
    return path.rsplit("/", 1)[-1].lstrip(".").startswith(f"part-{run_id}-")


def _fence(last: Commit | None, dead: Sequence[str]) -> Commit:
    """Return a commit without rows, whose number the crashed runs `dead` can then no longer use."""
    run_id = "after-" + dead[0]
    if last is None:
        return Commit(0, run_id, (), {}, "", ())
    return replace(last, version=last.version + 1, run_id=run_id, ranges=(), files=())
