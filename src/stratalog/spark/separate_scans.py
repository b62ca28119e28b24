"""Make filter pushdown safe where one DataFrame is scanned more than once.

Spark 4.1 to 4.3 keep what a pushed filter left of a Python data source (its partitions and its read function) in an object
that all scans of one DataFrame share. `df.filter(a).union(df.filter(b))` then reads one of the two twice, and `df.count()`
after `df.filter(a).count()` counts what was filtered: wrong answers without an error. Later versions keep it in the scan.

The remedy is an optimizer rule that gives each scan of our format an object of its own, which also means that each query
takes a snapshot of its own. It is a page of Java (`SeparateScans.java`), compiled in the session's JVM by Janino, the
compiler that Spark itself generates code with, and put among the session's extensions. Where that cannot be done (Spark
Connect), filters are not pushed down unless a query asks for it with the option `pushFilters`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stratalog.util.filesystem import REAL_FILESYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("stratalog.spark")

_SOURCE: Final = Path(__file__).with_name("SeparateScans.java")
_BUILDER: Final = "io.stratalog.spark.SeparateScans$Builder"
_SCAN_BUILDER: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"

#: Set in a session's JVM, for each extensions object that has the rule.
_MARK: Final = "stratalog.separateScans."


def separate_scans(spark: SparkSession) -> bool:
    """Whether scans of one DataFrame are separate in this session; makes them so if it can. May be called again."""
    try:
        jvm: Any = spark._jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if _are_separate_already(loader):
            return True
        extensions = spark._jsparkSession.extensions()
        mark = f"{_MARK}{jvm.java.lang.System.identityHashCode(extensions)}"
        if jvm.java.lang.System.getProperty(mark) is None:
            extensions.injectOptimizerRule(_compile(spark, jvm, loader))
            jvm.java.lang.System.setProperty(mark, "true")
    except Exception as error:
        # Whatever is missing (a Connect session has no JVM here, a later Spark other classes): the source works without.
        logger.info("filters are not pushed down in this session: %s", error)
        return False
    return True


def _are_separate_already(loader: Any) -> bool:
    """Whether this Spark keeps the read plan in the scan."""
    fields = loader.loadClass(_SCAN_BUILDER).getDeclaredFields()
    return any(field.getName() == "readInfo" for field in fields)


def _compile(spark: SparkSession, jvm: Any, loader: Any) -> Any:
    """An instance of the rule's builder."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(REAL_FILESYSTEM.read_bytes(_SOURCE).decode())
    builder = compiler.getClassLoader().loadClass(_BUILDER)
    gateway: Any = spark.sparkContext._gateway
    no_types, no_values = (
        gateway.new_array(jvm.java.lang.Class, 0),
        gateway.new_array(jvm.java.lang.Object, 0),
    )
    return builder.getDeclaredConstructor(no_types).newInstance(no_values)
