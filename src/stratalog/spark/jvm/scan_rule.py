"""Separate scans, column pruning and columnar input, which Spark's Python data sources lack in the JVM.

Spark 4.1 to 4.3 keep the result of a pushed filter for a Python data source (its partitions and its read function) in
an object that all scans of one DataFrame share. `df.filter(a).union(df.filter(b))` then reads one of the two twice, and
`df.count()` after `df.filter(a).count()` counts the filtered rows: wrong results without an error. Spark also does not
report to a Python data source which columns a query needs, so all of them go through the socket. It then copies the
Arrow batches row by row before the query sees them, which is two thirds of the cost of a scan of small records.

For each query, an optimizer rule (`StratalogScans.java`) replaces the table of each relation of our format with one
that shares nothing with other scans and passes the columns to the source. So each query also has its own snapshot.
The scans of that table give the batches to Spark as columns (`StratalogColumns.java`) and fill in the columns that are
the same for all rows of a partition, which Python does not send. Both are compiled in the session's JVM. The first is
added to the session's extensions, the second goes to the executors as a jar of the application. Micro-batches of a
stream have a different kind of plan: a planner strategy (`StratalogStreams.java`) turns them into columnar scans of the
columns used.

Where columnar scans are impossible (another version of Spark), or `spark.stratalog.scan.columns` is false, Spark takes
rows, as from any Python data source. Where the rule is impossible (Spark Connect), filters are only pushed down if a
query sets the option `pushFilters`, and columns are pruned by the option `columns`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.jvm.jvm_classes import JvmClasses, is_connect, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Property of a session: `false` lets Spark take rows, as from any Python data source. As in `StratalogScans.java`.
BY_COLUMNS: Final = "spark.stratalog.scan.columns"

_SCANS: Final = Path(__file__).with_name("StratalogScans.java")
_COLUMNS: Final = Path(__file__).with_name("StratalogColumns.java")
_STREAMS: Final = Path(__file__).with_name("StratalogStreams.java")

#: System property of a session's JVM, for each application and extensions object: the result of `install_scan_rule`.
_MARK: Final = "stratalog.scanRule."


def install_scan_rule(spark: SparkSession) -> dict[str, str | None]:
    """Install the rule and columnar scans in a session, as far as possible, at the first call.

    Return why the session lacks `scan-rule`, `columns` and `stream-columns`, None for each one that it has. The source
    works without them.
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
    except Exception as error:  # the extensions of this Spark may differ in any way  # noqa: BLE001
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
    except Exception as error:  # this Spark may lack any class that a columnar scan needs  # noqa: BLE001
        found |= {"columns": reason_of(error), "stream-columns": "columns is off"}
    try:
        extensions.injectOptimizerRule(JvmClasses.compile(spark, _SCANS).new("Builder", intake))
    except Exception as error:  # this Spark may lack any class that the rule needs  # noqa: BLE001
        return _all_off(reason_of(error))
    if columns is not None and intake is not None:
        try:
            strategy = JvmClasses.compile(spark, _STREAMS).new("Builder", columns.new("Readers"))
            extensions.injectPlannerStrategy(strategy)
        except Exception as error:  # this Spark may lack any class that the strategy needs  # noqa: BLE001
            found["stream-columns"] = reason_of(error)
    return found
