"""Exports into Delta tables, which accept each `txnVersion` once."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import Row

from stratalog.errors import UsageError
from stratalog.spark.export.commits import Commit
from stratalog.spark.export.engines import MEMORY, EngineTarget, quoted


class DeltaTarget(EngineTarget):
    """`to` is a path, or the name of a table in a catalog."""

    name = "delta"

    @property
    def _table(self) -> str:
        return f"delta.`{self._to}`" if "/" in self._to else self._to

    def read(self) -> DataFrame:
        if not self._exists():
            raise UsageError(f"{self._to} is not a Delta table")
        return self._spark.table(self._table)

    def _exists(self) -> bool:
        if "/" not in self._to:
            return self._spark.catalog.tableExists(self._to)
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
        history = self._spark.sql(f"DESCRIBE HISTORY {self._table}")
        mine = history.where(F.col("userMetadata").startswith('{"format":') & F.col("userMetadata").contains('"run":'))
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
        self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ('{MEMORY}' = '{quoted(commit)}')")

    def _size_of_last(self) -> tuple[int | None, int | None]:
        metrics = self._history()[0]["operationMetrics"]
        return int(metrics.get("numFiles", 0)), int(metrics.get("numOutputBytes", 0))
