"""What a table format must be able to do for an export, and which one is meant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stratalog.spark.export.commits import Commit
from stratalog.spark.export.counts import Counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.jobs import Progress


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What a commit added. `files` and `size` in bytes are None where the engine does not tell."""

    counts: Counts
    files: int | None
    size: int | None


class ExportTarget(ABC):
    """A table that gets rows and the memory of them in one step."""

    name: str

    @abstractmethod
    def recover(self) -> Commit | None:
        """Clean up after runs that died; the last commit, None for a table that was never exported to.

        Its `schema` is empty where no rows were committed yet. OverlappingRunsError, UsageError, CorruptCommitError.
        """

    @abstractmethod
    def add(self, rows: DataFrame, commit: Commit, progress: Progress) -> CommitResult:
        """Append the rows and remember the commit, which follows the last one; both or none. OverlappingRunsError."""

    @abstractmethod
    def read(self) -> DataFrame:
        """The table. UsageError when there is none."""


def open_target(spark: SparkSession, kind: str, to: str, options: Mapping[str, str]) -> ExportTarget:
    """`kind` is parquet, delta or iceberg. UsageError when `to` cannot be one, or the session lacks the engine."""
    from stratalog.errors import UsageError

    match kind:
        case "parquet":
            from stratalog.spark.export.parquet_target import ParquetTarget

            return ParquetTarget(spark, to, options)
        case "delta" | "iceberg":
            from stratalog.spark.export.delta_table import DeltaTarget
            from stratalog.spark.export.engines import check_engine
            from stratalog.spark.export.iceberg_table import IcebergTarget

            if options:
                raise UsageError(f"target options are for parquet; {kind} takes its own from the session's properties")
            check_engine(spark, kind)
            return DeltaTarget(spark, to) if kind == "delta" else IcebergTarget(spark, to)
        case _:
            raise UsageError(f"table format {kind}: expected parquet, delta or iceberg")
