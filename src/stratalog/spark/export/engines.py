"""Exports into Delta and Iceberg tables, through the engines' own libraries in the session.

The commit that adds the rows also records the offsets (`commits`): as `userMetadata` in Delta, as a property of the
snapshot in Iceberg. Engines forget old commits, so each run also sets a table property, which is read when no commit
has the offsets.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from stratalog.errors import UsageError
from stratalog.jobs import Progress
from stratalog.spark.export.commits import Commit
from stratalog.spark.export.counts import Counts
from stratalog.spark.export.layout import UNDECODED
from stratalog.spark.export.parquet_table import OverlappingRunsError
from stratalog.spark.export.targets import CommitResult, ExportTarget

#: Name of the export's record in commits and table properties, and of Delta's transactions.
MEMORY: Final = "stratalog.export"

#: Releases that were tried and work, by version of Spark.
WORKING: Final = {
    "delta": {
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
}

#: Session property: use an engine that was not tested with this Spark.
UNTRIED: Final = "spark.stratalog.export.untriedEngines"

_EXTENSIONS: Final = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def check_engine(spark: SparkSession, kind: str) -> None:
    """Raise UsageError if the engine does not work with the session's Spark, or the session lacks the engine."""
    known = WORKING[kind]
    version = ".".join(spark.version.split(".")[:2])
    if version not in known and spark.conf.get(UNTRIED, "false") != "true":
        raise UsageError(
            f"{kind} tables cannot be written with Spark {spark.version}: no release of the engine is known to work "
            f"with it. Use Spark {' or '.join(known)} ({', '.join(known.values())}), a Parquet table, or, for a "
            f"release that is newer than this check, the property {UNTRIED}=true"
        )
    extensions = spark.conf.get("spark.sql.extensions", None) or ""
    if _EXTENSIONS[kind] not in extensions:
        package = known.get(version, f"the package of {kind} for Spark {version}")
        raise UsageError(
            f"the session has no {kind}: start it with spark.jars.packages={package} and "
            f"spark.sql.extensions={_EXTENSIONS[kind]}; docs/how-to/spark_export.md has the rest"
        )


class EngineTarget(ExportTarget):
    """The common part of both engines."""

    def __init__(self, spark: SparkSession, to: str) -> None:
        self._spark = spark
        self._to = to

    def recover(self) -> Commit | None:
        return self._last()  # the engine removes files of crashed runs: `VACUUM`, `remove_orphan_files`

    def add(self, rows: DataFrame, commit: Commit, progress: Progress) -> CommitResult:
        try:
            self._append(rows, commit)
        except Exception:
            self._check_alone(self._last(), commit)
            raise
        self._check_alone(self._last(), commit)
        self._remember(commit)
        counts = self._count(commit)
        progress.advance(sum(counts.records.values()))
        return CommitResult(counts, *self._size_of_last())

    def _check_alone(self, last: Commit | None, commit: Commit) -> None:
        """Raise OverlappingRunsError if `last` is of another run in this commit's place."""
        if last is not None and last.version >= commit.version and last.run_id != commit.run_id:
            raise OverlappingRunsError.of(self._to)

    def _count(self, commit: Commit) -> Counts:
        """Count the records of the commit in the table. Engines know the offsets of each file, so they read few."""
        table = self.read()
        bad = F.count(UNDECODED) if UNDECODED in table.columns else F.lit(0)
        is_new = F.lit(False)
        for each in commit.ranges:
            is_there = (F.col("topic") == each.topic) & (F.col("partition") == each.partition)
            is_new |= is_there & (F.col("offset") >= each.start) & (F.col("offset") < each.end)
        counted = table.where(is_new).groupBy("topic", "partition").agg(F.count("*"), bad).collect()
        records = {(row[0], row[1]): row[2] for row in counted}
        undecoded = {(row[0], row[1]): row[3] for row in counted}
        return Counts(records, undecoded)

    @abstractmethod
    def _last(self) -> Commit | None:
        """Return the newest commit of an export, or None without a table or without an export to it."""

    @abstractmethod
    def _append(self, rows: DataFrame, commit: Commit) -> None:
        """Add the rows and the record of the commit in one step."""

    @abstractmethod
    def _remember(self, commit: Commit) -> None:
        """Set the table property."""

    @abstractmethod
    def _size_of_last(self) -> tuple[int | None, int | None]:
        """Return files and bytes of the newest commit of an export, None where the engine does not report them."""


def quoted(commit: Commit) -> str:
    """Return the commit as JSON, escaped for an SQL string."""
    return commit.to_json().replace("\\", "\\\\").replace("'", "\\'")
