"""Exports into Delta and Iceberg tables, through the engines' own libraries in the session.

The memory of an export (`commits`) is in the very commit that adds the rows: `userMetadata` in Delta, with `txnVersion` so
that one version is only ever written once; a property of the snapshot in Iceberg. Engines forget old commits (log
retention, expired snapshots), so each run also leaves it as a table property, which is looked at when no commit has it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import UsageError
from stratalog.spark.pipelines.export.commits import Commit
from stratalog.spark.pipelines.export.counts import Counts
from stratalog.spark.pipelines.export.layout import UNDECODED
from stratalog.spark.pipelines.export.parquet_table import OverlappingRunsError
from stratalog.spark.pipelines.export.targets import Outcome, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import Row

    from stratalog.spark.pipelines.progress import Progress

#: Name of what an export remembers, in commits and table properties, and of Delta's transactions.
MEMORY: Final = "stratalog.export"

#: Releases that were tried and work, by version of Spark.
WORKING: Final = {
    "delta": {
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
}

#: Session property: use an engine although nobody tried it with this Spark.
UNTRIED: Final = "spark.stratalog.export.untriedEngines"

_EXTENSIONS: Final = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def check_engine(spark: SparkSession, kind: str) -> None:
    """UsageError when the session's Spark is none that the engine works with, or the session lacks the engine."""
    known = WORKING[kind]
    version = ".".join(spark.version.split(".")[:2])
    if version not in known and spark.conf.get(UNTRIED, "false") != "true":
        raise UsageError(
            f"{kind} tables cannot be written with Spark {spark.version}: no release of the engine is known to work with "
            f"it. Use Spark {' or '.join(known)} ({', '.join(known.values())}), a Parquet table, or, for a release that is "
            f"newer than this check, the property {UNTRIED}=true"
        )
    extensions = spark.conf.get("spark.sql.extensions", None) or ""
    if _EXTENSIONS[kind] not in extensions:
        package = known.get(version, f"the package of {kind} for Spark {version}")
        raise UsageError(
            f"the session has no {kind}: start it with spark.jars.packages={package} and "
            f"spark.sql.extensions={_EXTENSIONS[kind]}; docs/spark_export.md has the rest"
        )


class EngineTarget(Target):
    """What the two have in common."""

    def __init__(self, spark: SparkSession, to: str) -> None:
        self._spark = spark
        self._to = to

    def recover(self) -> Commit | None:
        return (
            self._last()
        )  # files of runs that died are the engine's to clean: `VACUUM`, `remove_orphan_files`

    def add(self, rows: DataFrame, commit: Commit, progress: Progress) -> Outcome:
        self._append(rows, commit)
        last = self._last()
        if last is None or last.run_id != commit.run_id:
            raise OverlappingRunsError(
                f"{self._to}: another run exported to the table meanwhile; start this one again when the other is done"
            )
        self._remember(commit)
        counts = self._count(commit)
        progress.advance(sum(counts.records.values()))
        return Outcome(counts, *self._size_of_last())

    def _count(self, commit: Commit) -> Counts:
        """The records of the commit, as the table has them: engines keep the offsets of each file, and read few files."""
        from pyspark.sql import functions as F

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
        """The newest commit of an export; None where there is no table or none exported to it."""

    @abstractmethod
    def _append(self, rows: DataFrame, commit: Commit) -> None:
        """Add rows and memory in one commit."""

    @abstractmethod
    def _remember(self, commit: Commit) -> None:
        """Set the table property."""

    @abstractmethod
    def _size_of_last(self) -> tuple[int | None, int | None]:
        """Files and bytes of the newest commit of an export, as far as the engine tells."""


class DeltaTarget(EngineTarget):
    """`to` is a path, or the name of a table in a catalog."""

    name = "delta"

    @property
    def _table(self) -> str:
        return f"delta.`{self._to}`" if "/" in self._to else self._to

    def read(self) -> DataFrame:
        if not self._exists():
            raise UsageError(f"{self._to} is no Delta table")
        return self._spark.table(self._table)

    def _exists(self) -> bool:
        if "/" not in self._to:
            return self._spark.catalog.tableExists(self._to)
        from pyspark.errors import AnalysisException

        try:
            self._spark.read.format("delta").load(self._to)
        except AnalysisException as error:
            if error.getCondition() in (
                "DELTA_TABLE_NOT_FOUND",
                "DELTA_PATH_DOES_NOT_EXIST",
                "PATH_NOT_FOUND",
            ):
                return False
            if "is not a Delta table" in str(error) or "doesn't exist" in str(error):
                return False
            raise
        return True

    def _history(self) -> list[Row]:
        from pyspark.sql import functions as F

        history = self._spark.sql(f"DESCRIBE HISTORY {self._table}")
        mine = history.where(
            F.col("userMetadata").startswith('{"format":') & F.col("userMetadata").contains('"run":')
        )
        return mine.orderBy(F.desc("version")).limit(1).collect()

    def _last(self) -> Commit | None:
        if not self._exists():
            return None
        if rows := self._history():
            return Commit.parse(rows[0]["userMetadata"], f"{self._to}, version {rows[0]['version']}")
        detail = self._spark.sql(f"DESCRIBE DETAIL {self._table}").head()
        remembered = detail["properties"].get(MEMORY) if detail is not None else None
        return Commit.parse(remembered, f"{self._to}, property {MEMORY}") if remembered else None

    def _append(self, rows: DataFrame, commit: Commit) -> None:
        writer = rows.write.format("delta").mode("append").partitionBy(*commit.partition_by)
        writer = writer.option("mergeSchema", "true").option("userMetadata", commit.to_json())
        writer = writer.option("txnAppId", MEMORY).option("txnVersion", commit.version)
        if "/" in self._to:
            writer.save(self._to)
        else:
            writer.saveAsTable(self._to)

    def _remember(self, commit: Commit) -> None:
        self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ('{MEMORY}' = '{_quoted(commit)}')")

    def _size_of_last(self) -> tuple[int | None, int | None]:
        metrics = self._history()[0]["operationMetrics"]
        return int(metrics.get("numFiles", 0)), int(metrics.get("numOutputBytes", 0))


class IcebergTarget(EngineTarget):
    """`to` is the name of a table in a catalog of the session."""

    name = "iceberg"

    def read(self) -> DataFrame:
        if not self._spark.catalog.tableExists(self._to):
            raise UsageError(f"there is no table {self._to}")
        return self._spark.table(self._to)

    def _last_snapshot(self) -> Any:
        """The newest snapshot of an export among the ancestors of the current one."""
        snapshots = self._spark.sql(
            f"SELECT snapshot_id, summary FROM {self._to}.snapshots JOIN {self._to}.history USING (snapshot_id) "
            f"WHERE is_current_ancestor AND summary['{MEMORY}'] IS NOT NULL ORDER BY committed_at DESC"
        )
        return snapshots.head()

    def _last(self) -> Commit | None:
        if not self._spark.catalog.tableExists(self._to):
            return None
        snapshot = self._last_snapshot()
        if snapshot is not None:
            return Commit.parse(
                snapshot["summary"][MEMORY], f"{self._to}, snapshot {snapshot['snapshot_id']}"
            )
        found = self._spark.sql(f"SHOW TBLPROPERTIES {self._to}").where(f"key = '{MEMORY}'").head()
        return Commit.parse(found["value"], f"{self._to}, property {MEMORY}") if found is not None else None

    def _append(self, rows: DataFrame, commit: Commit) -> None:
        from pyspark.sql import functions as F

        if not self._spark.catalog.tableExists(self._to):
            empty = rows.limit(0).writeTo(self._to).using("iceberg")
            # New columns of decoded values are added by later runs.
            empty = empty.tableProperty("write.spark.accept-any-schema", "true")
            if commit.partition_by:
                empty = empty.partitionedBy(*(F.col(name) for name in commit.partition_by))
            empty.create()
        writer = rows.writeTo(self._to).option(f"snapshot-property.{MEMORY}", commit.to_json())
        writer.option("merge-schema", "true").append()

    def _remember(self, commit: Commit) -> None:
        self._spark.sql(f"ALTER TABLE {self._to} SET TBLPROPERTIES ('{MEMORY}' = '{_quoted(commit)}')")

    def _size_of_last(self) -> tuple[int | None, int | None]:
        summary = self._last_snapshot()["summary"]
        return int(summary.get("added-data-files", 0)), int(summary.get("added-files-size", 0))


def _quoted(commit: Commit) -> str:
    """Inside an SQL string."""
    return commit.to_json().replace("\\", "\\\\").replace("'", "\\'")
