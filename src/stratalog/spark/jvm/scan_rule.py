"""Separate scans, column pruning and columnar input, which Spark's Python data sources lack in the JVM.

Spark 4.1 to 4.3 keep what a pushed filter left of a Python data source (its partitions and its read function) in an
object that all scans of one DataFrame share. `df.filter(a).union(df.filter(b))` then reads one of the two twice, and
`df.count()` after `df.filter(a).count()` counts what was filtered: wrong answers without an error. And no Python data
source learns which columns a query needs: all of them go through the socket. What arrives, Arrow batches, is taken
apart row by row, each row copied, before the query sees it: two thirds of what a scan of small records costs.

An optimizer rule (`StratalogScans.java`) replaces the table of each relation of our format, query by query, by one
that shares nothing with other scans and passes the columns to the source. So each query also has its own snapshot.
The scans of that table hand the batches to Spark as columns (`StratalogColumns.java`) and fill in the columns that are
the same for all rows of a partition, which Python need not send. Both are compiled in the session's JVM; the first is
put among the session's extensions, the second goes to the executors as a jar of the application. Micro-batches of a
stream are plans of another kind: a planner's strategy (`StratalogStreams.java`) makes scans of the columns used, by
columns, of them.

Where the second cannot be done (another version of Spark), or `spark.stratalog.scan.columns` is false, Spark takes rows
as of any Python data source. Where the first cannot be done (Spark Connect), filters are not pushed down unless a query
asks for it with the option `pushFilters`, and columns are pruned by the option `columns`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.jvm.jvm_classes import JvmClasses, is_connect, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Property of a session: `false` lets Spark take rows, as of any Python data source. As in `StratalogScans.java`.
BY_COLUMNS: Final = "spark.stratalog.scan.columns"

_SCANS: Final = Path(__file__).with_name("StratalogScans.java")
_COLUMNS: Final = Path(__file__).with_name("StratalogColumns.java")
_STREAMS: Final = Path(__file__).with_name("StratalogStreams.java")

#: Set in a session's JVM, for each application and extensions object, to what `install_scan_rule` has found.
_MARK: Final = "stratalog.scanRule."


def install_scan_rule(spark: SparkSession) -> dict[str, str | None]:
    """Install the rule and its columns in a session, as far as possible, the first time that it is called.

    Return for `scan-rule`, `columns` and `stream-columns` why the session lacks it, or None. The source works without
    any of them.
    """
    if is_connect(spark):
        return _all_off("Spark Connect has no JVM in this process")
    try:
        system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]  # classic sessions have one
        extensions = spark._jsparkSession.extensions()
        mark = f"{_MARK}{spark.sparkContext.applicationId}.{system.identityHashCode(extensions)}"
        known = system.getProperty(mark)
        found = _install(spark, extensions) if known is None else json.loads(known)
        system.setProperty(mark, json.dumps(found))
    except Exception as error:  # whatever this Spark has in place of its session's extensions  # noqa: BLE001
        return _all_off(reason_of(error))
    return dict(found)


def _all_off(why: str) -> dict[str, str | None]:
    return {"scan-rule": why, "columns": "scan-rule is off", "stream-columns": "scan-rule is off"}


def _install(spark: SparkSession, extensions: Any) -> dict[str, str | None]:
    found: dict[str, str | None] = {"scan-rule": None, "columns": None, "stream-columns": None}
    columns = intake = None
    try:
        columns = JvmClasses.compile(spark, _COLUMNS)
        columns.ship()
        intake = columns.new("Intake")
    except Exception as error:  # whatever this Spark lacks of what a scan by columns is made of  # noqa: BLE001
        found |= {"columns": reason_of(error), "stream-columns": "columns is off"}
    try:
        extensions.injectOptimizerRule(JvmClasses.compile(spark, _SCANS).new("Builder", intake))
    except Exception as error:  # whatever this Spark lacks of what the rule is made of  # noqa: BLE001
        return _all_off(reason_of(error))
    if columns is not None and intake is not None:
        try:
            strategy = JvmClasses.compile(spark, _STREAMS).new("Builder", columns.new("Readers"))
            extensions.injectPlannerStrategy(strategy)
        except Exception as error:  # whatever this Spark lacks of what the strategy is made of  # noqa: BLE001
            found["stream-columns"] = reason_of(error)
    return found
