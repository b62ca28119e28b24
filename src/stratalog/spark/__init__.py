"""Kafka's segments as a Spark data source: straight from data directories and buckets, no broker in the path.

    spark = stratalog.spark.local_session("my job")             # or: stratalog.spark.register(your_session)
    spark.read.format("stratalog").option("path", "/data").option("subscribe", "orders").load()

Importing this package is cheap: pyspark, pyarrow and numba are loaded by what needs them.
`docs/reference/spark_source.md` has every option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.spark.builder import read, read_stream, write, write_stream
from stratalog.spark.executor import SparkExecutor
from stratalog.spark.frames import audit_frame, forecast_frame
from stratalog.spark.jvm import quiet_this_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "SparkExecutor",
    "audit_frame",
    "forecast_frame",
    "local_session",
    "read",
    "read_stream",
    "register",
    "write",
    "write_stream",
]

quiet_this_worker()  # all planners import this package


def register(spark: SparkSession) -> None:
    """Make `format("stratalog")` known to a session.

    The session gets `spark.sql.python.filterPushdown.enabled` and an optimizer rule (`scan_rule`), which push filters
    on topic, partition, offset and timestamp, and the choice of columns, into the source. Without one of the two, Spark
    filters what the source reads. Workers must be able to import stratalog.
    """
    from stratalog.spark.session import register_source  # workers import this package too, and need no session

    register_source(spark)


def local_session(name: str, **conf: str | int | bool) -> SparkSession:
    """Return a local session that knows the source: quiet, in UTC, with a Java that was found or shipped.

    `conf` are further Spark properties (`**{"spark.driver.memory": "4g"}`), which win over the defaults. A session that
    already runs in this process is returned, with the source registered and the SQL properties applied. Raises
    UsageError without pyspark or a usable Java.
    """
    from stratalog.spark.session import open_local_session  # as in `register`

    return open_local_session(name, conf)
