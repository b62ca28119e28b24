"""What Spark's Python data sources lack in the JVM, as an optimizer rule: separate scans and column pruning.

Spark 4.1 to 4.3 keep what a pushed filter left of a Python data source (its partitions and its read function) in an object
that all scans of one DataFrame share. `df.filter(a).union(df.filter(b))` then reads one of the two twice, and `df.count()`
after `df.filter(a).count()` counts what was filtered: wrong answers without an error. And no Python data source is told
which columns a query needs: all of them go through the socket.

The rule replaces the table behind each relation of our format, query by query, by one that shares nothing with other scans
and tells the source the columns. So each query also takes a snapshot of its own. It is a little Java
(`StratalogScans.java`), compiled in the session's JVM by Janino, the compiler that Spark itself generates code with, and
put among the session's extensions. Where that cannot be done (Spark Connect, another version of Spark), filters are not
pushed down unless a query asks for it with the option `pushFilters`, and columns are pruned by the option `columns`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stratalog.util.filesystem import REAL_FILESYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("stratalog.spark")

_SOURCE: Final = Path(__file__).with_name("StratalogScans.java")
_BUILDER: Final = "io.stratalog.spark.StratalogScans$Builder"

#: Set in a session's JVM, for each extensions object that has the rule.
_MARK: Final = "stratalog.scanRule."


def install_scan_rule(spark: SparkSession) -> bool:
    """Whether this session has the rule now. May be called again."""
    try:
        jvm: Any = spark._jvm
        extensions = spark._jsparkSession.extensions()
        mark = f"{_MARK}{jvm.java.lang.System.identityHashCode(extensions)}"
        if jvm.java.lang.System.getProperty(mark) is None:
            extensions.injectOptimizerRule(_compile(spark, jvm))
            jvm.java.lang.System.setProperty(mark, "true")
    except Exception as error:
        # Whatever is missing (a Connect session has no JVM here, another Spark other classes): the source works without.
        logger.info("filters and columns are not pushed down in this session: %s", error)
        return False
    return True


def _compile(spark: SparkSession, jvm: Any) -> Any:
    """An instance of the rule's builder."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(REAL_FILESYSTEM.read_bytes(_SOURCE).decode())
    builder = compiler.getClassLoader().loadClass(_BUILDER)
    gateway: Any = spark.sparkContext._gateway
    no_types, no_values = (
        gateway.new_array(jvm.java.lang.Class, 0),
        gateway.new_array(jvm.java.lang.Object, 0),
    )
    return builder.getDeclaredConstructor(no_types).newInstance(no_values)
