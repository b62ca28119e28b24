"""The interface of a table format for exports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from pyspark.sql import DataFrame

from stratalog.jobs import Progress
from stratalog.spark.export.commits import Commit
from stratalog.spark.export.counts import Counts


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit. `files` and `size` in bytes are None where the engine does not report them."""

    counts: Counts
    files: int | None
    size: int | None


class ExportTarget(ABC):
    """A table to which rows and the record of their offsets are added in one step."""

    name: str

    @abstractmethod
    def recover(self) -> Commit | None:
        """Clean up after crashed runs. Return the last commit, or None for a table that was never exported to.

        Its `schema` is empty if no rows were committed. Raises OverlappingRunsError, UsageError, CorruptCommitError.
        """

    @abstractmethod
    def add(self, rows: DataFrame, commit: Commit, progress: Progress) -> CommitResult:
        """Append the rows and record the commit, both or none. Raises OverlappingRunsError if it is out of date."""

    @abstractmethod
    def read(self) -> DataFrame:
        """Return the table. Raises UsageError if there is none."""
