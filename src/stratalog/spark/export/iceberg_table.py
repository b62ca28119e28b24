"""Exports into Iceberg tables: each run writes to its own branch, which becomes the table in one step.

Iceberg accepts any two appends. But it only makes a branch the table (`fast_forward`) if the table has not changed
since the branch was made. So the second of two overlapping exports fails, and none of its rows become visible.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, functions as F

from stratalog.errors import UsageError
from stratalog.spark.export.commits import Commit
from stratalog.spark.export.engines import MEMORY, EngineTarget, quoted
from stratalog.util import SYSTEM_CLOCK

#: Prefix of branches of Iceberg tables that runs write to; `expire_snapshots` removes those of crashed runs.
_BRANCH: Final = "stratalog_export_"
_BRANCH_DAYS: Final = 7
#: How often a run tries to commit to an Iceberg table to which writers other than exports commit at the same time.
_ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.2


class IcebergTarget(EngineTarget):
    """`to` is the name of a table in a catalog of the session."""

    name = "iceberg"

    def read(self) -> DataFrame:
        if not self._spark.catalog.tableExists(self._to):
            raise UsageError(f"there is no table {self._to}")
        return self._spark.table(self._to)

    def _last_snapshot(self) -> Any:
        """Return the newest snapshot of an export among the ancestors of the current one."""
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
            return Commit.parse(snapshot["summary"][MEMORY], f"{self._to}, snapshot {snapshot['snapshot_id']}")
        found = self._spark.sql(f"SHOW TBLPROPERTIES {self._to}").where(f"key = '{MEMORY}'").head()
        return Commit.parse(found["value"], f"{self._to}, property {MEMORY}") if found is not None else None

    def _append(self, rows: DataFrame, commit: Commit) -> None:
        self._create_if_absent(rows, commit)
        # If another writer appended or rewrote files in between, the rows must be written again on top of that.
        for _ in range(_ATTEMPTS_MAX - 1):
            if self._append_to(self._head(), rows, commit, may_fail=True):
                return
        self._append_to(self._head(), rows, commit, may_fail=False)

    def _append_to(self, base: int | None, rows: DataFrame, commit: Commit, *, may_fail: bool) -> bool:
        """Add rows to snapshot `base` of the table. With `may_fail`, return False if the table has changed since."""
        branch = f"{_BRANCH}{commit.run_id}"
        made_from = "" if base is None else f"AS OF VERSION {base}"
        self._alter(f"CREATE BRANCH `{branch}` {made_from} RETAIN {_BRANCH_DAYS} DAYS")
        try:
            self._check_alone(self._last(), commit)  # from here on Iceberg itself detects changes
            writer = rows.writeTo(f"{self._to}.branch_{branch}").option("merge-schema", "true")
            writer.option(f"snapshot-property.{MEMORY}", commit.to_json()).append()
            try:
                self._publish(branch)
            except Exception:
                last = self._last()
                self._check_alone(last, commit)
                if last is not None and last.run_id == commit.run_id:
                    return True  # the response was lost, not the commit
                if not may_fail or self._head() == base:
                    raise
                return False
        finally:
            self._alter(f"DROP BRANCH IF EXISTS `{branch}`")
        return True

    def _create_if_absent(self, rows: DataFrame, commit: Commit) -> None:
        if self._spark.catalog.tableExists(self._to):
            return
        empty = rows.limit(0).writeTo(self._to).using("iceberg")
        # New columns of decoded values are added by later runs.
        empty = empty.tableProperty("write.spark.accept-any-schema", "true")
        if commit.partition_by:
            empty = empty.partitionedBy(*(F.col(name) for name in commit.partition_by))
        try:
            empty.create()
        except Exception:
            if not self._spark.catalog.tableExists(self._to):  # otherwise another run has created it
                raise

    def _head(self) -> int | None:
        """Return the current snapshot of the table."""
        found = self._spark.sql(f"SELECT snapshot_id FROM {self._to}.refs WHERE name = 'main'").head()
        return None if found is None else int(found[0])

    def _publish(self, branch: str) -> None:
        """Make the branch the table, if the table has not changed since the branch was made."""
        named = self._to.split(".")[0]
        is_catalog = self._spark.conf.get(f"spark.sql.catalog.{named}", None) is not None
        catalog = named if is_catalog else self._spark.catalog.currentCatalog()
        self._sql(f"CALL {catalog}.system.fast_forward('{self._to}', 'main', '{branch}')")

    def _alter(self, change: str) -> None:
        self._sql(f"ALTER TABLE {self._to} {change}")

    def _sql(self, text: str) -> None:
        """Run a statement with retries: Iceberg fails if anything else in the table changes at that moment."""
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                self._spark.sql(text)
            except Exception as error:
                if "CommitFailedException" not in str(error) or attempt == _ATTEMPTS_MAX:
                    raise
                SYSTEM_CLOCK.sleep(_PAUSE_S * attempt)
            else:
                return

    def _remember(self, commit: Commit) -> None:
        self._spark.sql(f"ALTER TABLE {self._to} SET TBLPROPERTIES ('{MEMORY}' = '{quoted(commit)}')")

    def _size_of_last(self) -> tuple[int | None, int | None]:
        summary = self._last_snapshot()["summary"]
        return int(summary.get("added-data-files", 0)), int(summary.get("added-files-size", 0))
