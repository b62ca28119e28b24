"""What Spark's Python data sources lack in the JVM: separate scans, column pruning, and taking columns as columns.

Spark 4.1 to 4.3 keep what a pushed filter left of a Python data source (its partitions and its read function) in an
object that all scans of one DataFrame share. `df.filter(a).union(df.filter(b))` then reads one of the two twice, and
`df.count()` after `df.filter(a).count()` counts what was filtered: wrong answers without an error. And no Python data
source is told which columns a query needs: all of them go through the socket. What arrives, Arrow batches, is taken
apart row by row, each row copied, before the query sees it: two thirds of what a scan of small records costs.

An optimizer rule (`StratalogScans.java`) replaces the table behind each relation of our format, query by query, by one
that shares nothing with other scans and tells the source the columns. So each query also takes a snapshot of its own.
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

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stratalog.spark.jvm.jvm_classes import JvmClasses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("stratalog.spark")

_SCANS: Final = Path(__file__).with_name("StratalogScans.java")
_COLUMNS: Final = Path(__file__).with_name("StratalogColumns.java")
_STREAMS: Final = Path(__file__).with_name("StratalogStreams.java")

#: Set in a session's JVM, for each application and extensions object that has the rule.
_MARK: Final = "stratalog.scanRule."


def install_scan_rule(spark: SparkSession) -> bool:
    """Whether this session has the rule now. May be called again."""
    try:
        jvm: Any = spark._jvm
        extensions = spark._jsparkSession.extensions()
        identity = jvm.java.lang.System.identityHashCode(extensions)
        mark = f"{_MARK}{spark.sparkContext.applicationId}.{identity}"
        if jvm.java.lang.System.getProperty(mark) is None:
            rule = JvmClasses.compile(spark, _SCANS)
            columns = _columnar_classes(spark)
            intake = None if columns is None else columns.new("Intake")
            extensions.injectOptimizerRule(rule.new("Builder", intake))
            if columns is not None:
                _install_streams(spark, columns)
            jvm.java.lang.System.setProperty(mark, "true")
    except Exception as error:
        # Whatever is missing (a Connect session has no JVM here, another Spark other classes): the source works
        # without.
        logger.info("filters and columns are not pushed down in this session: %s", error)
        return False
    return True


def _columnar_classes(spark: SparkSession) -> JvmClasses | None:
    """What makes a scan by rows one by columns; None where that cannot be had."""
    try:
        classes = JvmClasses.compile(spark, _COLUMNS)
        classes.ship()
    except Exception as error:
        logger.info("this session takes rows of the source, not columns: %s", error)
        return None
    return classes


def _install_streams(spark: SparkSession, columns: JvmClasses) -> None:
    """Let micro-batches too read the columns that they use, as columns; where that cannot be had, they read rows."""
    try:
        strategy = JvmClasses.compile(spark, _STREAMS).new("Builder", columns.new("Readers"))
        spark._jsparkSession.extensions().injectPlannerStrategy(strategy)
    except Exception as error:
        logger.info("streams of this session take rows of the source, not columns: %s", error)
